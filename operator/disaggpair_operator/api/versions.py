"""vLLM's version as text: from `engine.version` or from an image's tag. Pure."""

import re
from typing import Final

_NUMBERS: Final = r"[0-9]{1,3}\.[0-9]{1,3}(\.[0-9]{1,3})?"
VERSION: Final = rf"^$|^{_NUMBERS}([-_+.a-z][-_+.A-Za-z0-9]*)?$"
"""A version, or nothing; valid for RE2 too."""
VERSION_TAG: Final = rf":v?{_NUMBERS}([-_+.][-_.A-Za-z0-9]*)?(@sha256:[0-9a-f]+)?$"
"""End of an image reference whose tag begins with a version; valid for RE2 too."""

Minor = tuple[int, int]
"""Major and minor number, such as (0, 33)."""


def minor_of(version: str) -> Minor:
    """Major and minor number of a version such as `0.33.0` or `v0.33`.

    Raises:
        ValueError: the text does not begin with two numbers.
    """
    found = re.match(r"v?(\d+)\.(\d+)", version)
    if not found:
        raise ValueError(f"{version!r} is not a version such as 0.33.0")
    return int(found[1]), int(found[2])


def version_of_tag(image: str) -> Minor | None:
    """Major and minor number in the image's tag, or None when the tag names no version."""
    found = re.search(VERSION_TAG, image)
    return minor_of(found[0].lstrip(":")) if found else None
