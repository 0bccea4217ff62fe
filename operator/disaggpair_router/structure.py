"""How much a body holds, told from its bytes where that is cheap. Pure.

What a body costs to read goes by its values, not by its bytes: a few hundred kilobytes of empty
objects take longer than ten megabytes of text. So values are counted before any of them is made.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from disaggpair_router.errors import BadRequest

AT_ONCE_BYTES: Final = 512 * 1024
AT_ONCE_CONTAINERS: Final = 2_000
"""Objects and lists: up to 5 us each, where they are blocks of messages."""
AT_ONCE_COMMAS: Final = 20_000
"""Other values: 0.1 us each, so that below so many bytes they need no count."""
_UNCOUNTED_COMMAS: Final = 96 * 1024
MOST_VALUES: Final = 2_000_000
MOST_CONTAINERS: Final = 500_000
MOST_MESSAGES: Final = 20_000
MOST_FIELDS: Final = 256
MOST_NAME: Final = 256
"""Characters of a field's name."""

_UNCOUNTED: Final = 4 * 1024
"""So few bytes hold some thousand empty objects at most."""
_FOUND: Final = 50
_LISTS: Final = {"messages": "messages", "input": "items of input"}
_STRING: Final = re.compile(rb'"[^"]*"')


def is_quick(raw: bytes) -> bool:
    """Whether reading a body takes a few milliseconds at most.

    Brackets and commas in texts count, too, so a body that would be quick may not look so.
    """
    size = len(raw)
    if size <= _UNCOUNTED:
        return True
    return (
        size <= AT_ONCE_BYTES
        and _count(raw, b"{") + _count(raw, b"[") <= AT_ONCE_CONTAINERS
        and (size <= _UNCOUNTED_COMMAS or raw.count(b",") <= AT_ONCE_COMMAS)
    )


def check_values(raw: bytes) -> None:
    """Raise BadRequest when a body has more values than are read."""
    if _within(raw):
        return
    # In JSON a backslash is within a string.
    bare = _STRING.sub(b"", raw.replace(rb"\\", b"").replace(rb"\"", b""))
    if not _within(bare):
        raise BadRequest(
            f"The body has more than {MOST_VALUES:,} values "
            f"or {MOST_CONTAINERS:,} objects and lists."
        )


def check_fields(body: Mapping[str, Any]) -> None:
    """Raise BadRequest when a body has more fields or messages than are read."""
    if len(body) > MOST_FIELDS:
        raise BadRequest(f"The body has more than {MOST_FIELDS} fields.")
    if max(map(len, body), default=0) > MOST_NAME:
        raise BadRequest(f"A field's name has more than {MOST_NAME} characters.")
    for name, what in _LISTS.items():
        given = body.get(name)
        if isinstance(given, list) and len(given) > MOST_MESSAGES:
            raise BadRequest(f"The body has more than {MOST_MESSAGES:,} {what}.")


def _count(raw: bytes, what: bytes) -> int:
    # To find is ten times as fast as to count where there is little to be found.
    at = -1
    for found in range(_FOUND):
        at = raw.find(what, at + 1)
        if at < 0:
            return found
    return _FOUND + raw.count(what, at + 1)


def _within(raw: bytes) -> bool:
    containers = raw.count(b"{") + raw.count(b"[")
    return containers <= MOST_CONTAINERS and containers + raw.count(b",") <= MOST_VALUES
