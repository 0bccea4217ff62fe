"""Texts in the parts of a message, by their several names."""

from collections.abc import Mapping

from disaggpair_bed.simengine.apierrors import BodyError

_TEXTS = ("text", "input_text", "output_text", "reasoning_text", "summary_text")


def joined_text(parts: object, name: str) -> str:
    """The text of all parts.

    Raises:
        BodyError: 400, there is a part of another kind in the field of that name.
    """
    if not isinstance(parts, list):
        raise BodyError(400, f"{name}: Input should be a valid list", param=name)
    texts = []
    for part in parts:
        if not isinstance(part, Mapping) or part.get("type") not in _TEXTS:
            raise BodyError(400, f"{name}: only text is understood here", param=name)
        texts.append(str(part.get("text", "")))
    return "".join(texts)
