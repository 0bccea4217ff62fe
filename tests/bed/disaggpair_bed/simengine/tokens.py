"""A toy tokenizer: four bytes of UTF-8 a token, exact and reversible.

A segment of text is cut from its start into pieces of at most four bytes that never split a
character. Segments do not share pieces, so what comes after a special token does not depend on
the length of what came before it. A piece of four bytes is its own number; a shorter one
carries its length above bit 32; special tokens lie above both.
"""

import hashlib
from array import array
from collections.abc import Iterable

PIECE_BYTES = 4
_SPECIAL = 9 << 32

BEGIN = _SPECIAL | 1
TURN_START = _SPECIAL | 2
HEADER_END = _SPECIAL | 3
END_OF_TURN = _SPECIAL | 4
"""Ends a turn in the prompt and an answer of the model."""
THINK_START = _SPECIAL | 5
THINK_END = _SPECIAL | 6

SPECIAL_TEXT = {
    BEGIN: "<|begin|>",
    TURN_START: "<|turn|>",
    HEADER_END: "<|header_end|>",
    END_OF_TURN: "<|end|>",
    THINK_START: "<think>",
    THINK_END: "</think>",
}

_MEDIA = 10 << 32


def encode(text: str) -> "array[int]":
    """Tokens of one segment of text."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) == len(text):
        return _encode_ascii(data)
    tokens = array("Q")
    piece = b""
    for character in text:
        encoded = character.encode("utf-8", "surrogatepass")
        if len(piece) + len(encoded) > PIECE_BYTES:
            tokens.append(_number(piece))
            piece = b""
        piece += encoded
    if piece:
        tokens.append(_number(piece))
    return tokens


def _encode_ascii(data: bytes) -> "array[int]":
    whole = len(data) - len(data) % PIECE_BYTES
    words = memoryview(data[:whole]).cast("I")
    tokens = array("Q", words)
    if whole < len(data):
        tokens.append(_number(data[whole:]))
    return tokens


def _number(piece: bytes) -> int:
    value = int.from_bytes(piece.ljust(PIECE_BYTES, b"\0"), "little")
    return value if len(piece) == PIECE_BYTES else (len(piece) << 32) | value


def media(data: str) -> int:
    """The token that stands for a picture or another attachment: a digest of its reference."""
    digest = hashlib.blake2b(data.encode("utf-8", "surrogatepass"), digest_size=4).digest()
    return _MEDIA | int.from_bytes(digest, "big")


def piece_bytes(token: int) -> bytes:
    """Bytes of one token; empty for special tokens and attachments."""
    length = token >> 32
    if length == 0:
        return token.to_bytes(PIECE_BYTES, "little")
    if length < PIECE_BYTES:
        return (token & 0xFFFFFFFF).to_bytes(PIECE_BYTES, "little")[:length]
    return b""


def decode(tokens: Iterable[int]) -> str:
    """Text of tokens, without the special ones."""
    return b"".join(map(piece_bytes, tokens)).decode("utf-8", "replace")


def is_token(value: object) -> bool:
    """Whether a value from outside is a token of this vocabulary."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < (11 << 32)
