"""Ids that nobody can guess: 128 bits of the system's randomness each, drawn for many at once.

A draw is a system call, and a turn needs three ids.
"""

import os
from typing import Final

_BYTES: Final = 16
_AT_ONCE: Final = 256

_drawn: list[str] = []
# Two processes with the same supply would give the same ids.
os.register_at_fork(after_in_child=_drawn.clear)


def new_id() -> str:
    """32 hexadecimal digits."""
    if not _drawn:
        supply = os.urandom(_BYTES * _AT_ONCE).hex()
        step = 2 * _BYTES
        _drawn.extend(supply[at : at + step] for at in range(0, len(supply), step))
    return _drawn.pop()
