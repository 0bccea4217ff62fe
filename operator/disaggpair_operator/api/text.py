"""Values of users in sentences: short, on one line, without control characters. Pure."""

import json
from typing import Final

_LONGEST_VALUE: Final = 60
"""Characters of a value that a sentence shows."""


def shown(value: object) -> str:
    """A value as JSON, cut where it gets long."""
    text = printable(json.dumps(value, ensure_ascii=False, default=str))
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def printable(text: str) -> str:
    """`text` with an escape for every character that a terminal would obey and not show."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )
