"""Digests that prove two engines hold the same tokens, without sending the tokens.

D takes them when it grants a lease, P compares them with its own prompt before it reads. Standard
library only, no clock, no I/O.

    h_0     = SHA-256 of the identity
    h_i     = h_{i-1} continued over the ids of chunk i, 4 bytes each
    d_i     = the first 16 bytes of h_i

A digest covers everything before its end, so equal digests mean equal identities, equal media and
equal tokens up to there. A chunk in which media start has its h replaced by a hash of h and these
media, at the end of the chunk: media after the last covered token have no part in it.
"""

import hashlib
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

CHUNK_TOKENS: Final = 256
"""Tokens between two digests. 256 ids are 1 KiB; from 2 KiB on, hashlib gives up the interpreter
lock for each update (CPython 3.11), which costs up to 5 ms a chunk beside a busy thread."""

DIGEST_BYTES: Final = 16

_ID_BYTES: Final = array("I").itemsize
_CHUNK_BYTES: Final = CHUNK_TOKENS * _ID_BYTES
_OF_TOKENS: Final = b"\x00"
_OF_MEDIA: Final = b"\x01"


@dataclass(frozen=True, slots=True)
class Media:
    """An image, video or sound in a prompt: its placeholder ids say nothing about its content."""

    offset: int
    """Place of its first placeholder, in tokens from the start of the prompt."""

    identity: bytes
    """What tells its content from any other."""


@dataclass(frozen=True, slots=True)
class Digests:
    """What is known of the first `tokens` tokens of a request.

    Raises:
        ValueError: the lengths do not fit each other.
    """

    tokens: int
    chunks: bytes
    """One digest for each full chunk, in order."""

    tail: bytes
    """The digest after the tokens that follow the last full chunk; empty if there are none."""

    def __post_init__(self) -> None:
        full, rest = divmod(self.tokens, CHUNK_TOKENS)
        wanted = (full * DIGEST_BYTES, DIGEST_BYTES if rest else 0)
        if self.tokens < 0 or (len(self.chunks), len(self.tail)) != wanted:
            raise ValueError(
                f"{self.tokens} tokens with {len(self.chunks)} bytes of chunk digests and "
                f"{len(self.tail)} of a tail"
            )


class TokenDigests:
    """Digests of tokens that arrive in pieces; the pieces have no part in the result.

    Args:
        identity: what must be equal besides the tokens: model, adapter, cache salt.
        media: all media of the request, in any order.
    """

    def __init__(self, identity: bytes, media: Sequence[Media] = ()) -> None:
        self._state = hashlib.sha256(_OF_TOKENS + identity)
        self._media = sorted(media, key=lambda item: (item.offset, item.identity))
        self._passed = 0  # of the media
        self._chunks = bytearray()
        self._rest = bytearray()

    @property
    def tokens(self) -> int:
        """How many were fed."""
        return self._closed + len(self._rest) // _ID_BYTES

    @property
    def _closed(self) -> int:
        return len(self._chunks) // DIGEST_BYTES * CHUNK_TOKENS

    def extend(self, tokens: Sequence[int]) -> None:
        """Feed the next tokens.

        Raises:
            OverflowError: an id is below 0 or above 2**32 - 1; nothing was fed.
        """
        if len(tokens) == 0:  # a view of nothing cannot be cast
            return
        data = memoryview(_packed(tokens)).cast("B")
        if self._rest:
            missing = _CHUNK_BYTES - len(self._rest)
            self._rest += data[:missing]
            data = data[missing:]
            if len(self._rest) < _CHUNK_BYTES:
                return
            self._close(self._rest)
        whole = len(data) - len(data) % _CHUNK_BYTES
        for start in range(0, whole, _CHUNK_BYTES):
            self._close(data[start : start + _CHUNK_BYTES])
        self._rest = bytearray(data[whole:])

    def at(self, tokens: int) -> Digests:
        """Digests of the first `tokens`.

        Raises:
            ValueError: more than were fed, or inside a chunk that is already full.
        """
        beyond = tokens - self._closed
        if beyond < 0 and tokens >= 0 and tokens % CHUNK_TOKENS == 0:
            return Digests(
                tokens, bytes(self._chunks[: tokens // CHUNK_TOKENS * DIGEST_BYTES]), b""
            )
        if not 0 <= beyond <= len(self._rest) // _ID_BYTES:
            raise ValueError(f"no digest at {tokens} of {self.tokens} tokens")
        tail = b""
        if beyond:
            state = self._state.copy()
            state.update(self._rest[: beyond * _ID_BYTES])
            tail = self._with_media(state, tokens)[0].digest()[:DIGEST_BYTES]
        return Digests(tokens, bytes(self._chunks), tail)

    def _close(self, chunk: bytearray | memoryview) -> None:
        self._state.update(chunk)
        if self._passed < len(self._media):
            self._state, self._passed = self._with_media(self._state, self._closed + CHUNK_TOKENS)
        self._chunks += self._state.digest()[:DIGEST_BYTES]

    def _with_media(self, state: "hashlib._Hash", end: int) -> "tuple[hashlib._Hash, int]":
        """The state after the media of the open chunk that start before `end`, and the next one."""
        last = bisect_left(self._media, end, lo=self._passed, key=lambda item: item.offset)
        if last == self._passed:
            return state, last
        mixed = hashlib.sha256(_OF_MEDIA + state.digest())
        for item in self._media[self._passed : last]:
            mixed.update(item.offset.to_bytes(8, "big"))
            mixed.update(hashlib.sha256(item.identity).digest())
        return mixed, last


def digests_of(
    tokens: Sequence[int], count: int, identity: bytes, media: Sequence[Media] = ()
) -> Digests:
    """Digests of the first `count` of the tokens.

    Raises:
        ValueError: there are fewer.
        OverflowError: an id is below 0 or above 2**32 - 1.
    """
    digests = TokenDigests(identity, media)
    digests.extend(tokens if count == len(tokens) else tokens[: max(count, 0)])
    return digests.at(count)


def common_tokens(
    mine: Sequence[int], identity: bytes, media: Sequence[Media], held: Digests
) -> int:
    """How many leading tokens of `mine` are proven to be those that `held` was made of.

    `held.tokens` if all of these are equal, else a multiple of `CHUNK_TOKENS`.
    """
    return common_prefix(digests_of(mine, min(len(mine), held.tokens), identity, media), held)


def common_prefix(mine: Digests, held: Digests) -> int:
    """As `common_tokens`, from digests of the first `held.tokens` tokens of mine, or of all."""
    if mine == held:
        return held.tokens
    full = min(mine.tokens, held.tokens) // CHUNK_TOKENS

    def differs(chunk: int) -> bool:  # and so do all chunks after it
        place = slice(chunk * DIGEST_BYTES, (chunk + 1) * DIGEST_BYTES)
        return mine.chunks[place] != held.chunks[place]

    return CHUNK_TOKENS * bisect_left(range(full), True, key=differs)


def _packed(tokens: Sequence[int]) -> "array[int]":
    """The ids in native byte order, which engines that copy each other's memory share."""
    if not isinstance(tokens, list):
        return array("I", tokens)
    packed = array("I")
    packed.fromlist(tokens)
    return packed
