"""Fields of an HTTP/1.1 head, read strictly, for the lease listener and its reader. Pure."""

import re
from collections.abc import Set as AbstractSet
from typing import Final

MAX_HEAD_BYTES: Final = 8 * 1024
MAX_FIELDS: Final = 64

END_OF_HEAD: Final = b"\r\n\r\n"

_FIELD: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t -~\x80-\xff]*)")
_LENGTH: Final = re.compile(rb"[0-9]{1,9}")


def read_fields(lines: list[bytes], used: AbstractSet[bytes]) -> dict[bytes, bytes]:
    """The fields among `used`, by name in lower case.

    Raises:
        ValueError: a line is no field (folded, with a control character), a used one stands
            twice, or there are too many.
    """
    if len(lines) > MAX_FIELDS:
        raise ValueError(f"there are more than {MAX_FIELDS} fields")
    found: dict[bytes, bytes] = {}
    for line in lines:
        if not (field := _FIELD.fullmatch(line)):
            raise ValueError("a field of the head cannot be read")
        name = field[1].lower()
        if name not in used:
            continue
        if name in found:
            raise ValueError("a field of the head stands twice")
        found[name] = field[2].rstrip(b" \t")
    return found


def read_length(value: bytes) -> int:
    """A Content-Length.

    Raises:
        ValueError: it is no number, or one of more than nine digits.
    """
    if not _LENGTH.fullmatch(value):
        raise ValueError("the length of the body is not a number")
    return int(value)


def is_last(fields: dict[bytes, bytes]) -> bool:
    """Whether the connection ends after this message."""
    options = fields.get(b"connection", b"").lower().split(b",")
    return b"close" in (option.strip() for option in options)
