"""KV of a position: a 64-bit value that depends on the token and on the position before it.

    kv[i] = mix(kv[i - 1], token[i])        kv[-1] = seed(model)

A prefill that starts after some computed positions goes on from the value that lies in the
cache, right or wrong, as attention does. A step of the model hashes every position of the
request, so one foreign block anywhere changes what is sampled.
"""

import hashlib
from array import array
from collections.abc import Iterable

BYTES_PER_POSITION = 8
_MASK = (1 << 64) - 1
_MULTIPLIER = 0x9E3779B97F4A7C15


def seed(model: str) -> int:
    """Value before the first position: engines with other weights have other KV."""
    return int.from_bytes(hashlib.blake2b(model.encode(), digest_size=8).digest(), "big")


def extend(previous: int, tokens: Iterable[int]) -> "array[int]":
    """KV of consecutive tokens after a position whose value is `previous`."""
    values = array("Q")
    append = values.append
    for token in tokens:
        previous = ((previous ^ token) * _MULTIPLIER) & _MASK
        previous ^= previous >> 32
        append(previous)
    return values
