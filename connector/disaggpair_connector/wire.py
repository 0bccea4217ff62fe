"""What a P asks of the lease listener of a D, and the answer, as JSON. Pure.

The two engines are installed apart and the network between them is shared, so whatever the other
side sent is checked in full before anything is made of it: types, ranges, lengths, and that the
parts agree. Errors name the part that is wrong and never its value, which may be a token.
"""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from disaggpair_connector.digest import CHUNK_TOKENS, Digests
from disaggpair_connector.handle import HandleError, Peer, peer_of
from disaggpair_connector.lease import Lease, Purpose

MAX_BODY_BYTES: Final = 64 * 1024
"""A body that is sent to the listener."""

MAX_ANSWER_BYTES: Final = 8 * 1024 * 1024
"""An answer of the listener; 2**19 block ids of 7 digits and their digests fit."""

MAX_TOKENS: Final = 2**24
MAX_BLOCKS: Final = 2**19
"""Block ids in all groups together."""
MAX_BLOCK_ID: Final = 2**31 - 1
MAX_GROUPS: Final = 256
MAX_DEADLINE_S: Final = 86_400.0

TOKEN: Final = re.compile(r"[!-~]{1,256}")
"""A lease's token: printable ASCII without spaces."""

_PURPOSES: Final[tuple[Purpose, ...]] = get_args(Purpose)

DeclineReason = Literal["unreachable", "timeout", "unknown", "taken", "token", "malformed", "busy"]


class Malformed(ValueError):
    """What was sent cannot be used; the message names the part."""


@dataclass(frozen=True, slots=True)
class Declined:
    """There is nothing to read, and why."""

    reason: DeclineReason
    """`unreachable`: no connection, or one that broke; `timeout`: no answer in time; `unknown`,
    `taken`, `token`: D's own refusals; `malformed`: the handle or the answer; `busy`: too many
    questions here, or connections there."""


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """A lease that P may read once, by the word of the D that holds it."""

    peer: Peer
    """Whose blocks they are."""
    digests: Digests
    block_ids: tuple[tuple[int, ...], ...]
    """By group of the cache; of each group that is `divisible`, at least one block for every
    `block_size` tokens begun."""
    block_size: int
    """Tokens per block."""
    divisible: bool
    """Whether the leading blocks alone may be read."""
    deadline_s: float
    """Seconds, counted from the question, until which D keeps the blocks for the read."""
    token: str = field(repr=False)
    """The reader's own, with which it ends the lease."""


def encode(value: Mapping[str, Any]) -> bytes:
    """JSON without spaces, in ASCII."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")


def encode_read(lease: Lease, *, block_size: int, deadline_s: float) -> bytes:
    """The answer to a read, as `decode_read` takes it."""
    return encode(
        {
            "token": lease.token,
            "peer": peer_of(lease.handle).params(),
            "tokens": lease.digests.tokens,
            "chunk": CHUNK_TOKENS,
            "chunks": base64.b64encode(lease.digests.chunks).decode("ascii"),
            "tail": lease.digests.tail.hex(),
            "block_ids": [list(group) for group in lease.block_ids],
            "block_size": block_size,
            "divisible": lease.divisible,
            "deadline_s": deadline_s,
        }
    )


def decode_read(body: bytes) -> ReadAnswer:
    """The answer to a read.

    Raises:
        Malformed: a part is missing, wrong, or does not agree with another.
    """
    answer = decode(body, MAX_ANSWER_BYTES)
    peer = _peer(answer.get("peer"))
    digests = _digests(answer)
    block_ids = _block_ids(answer.get("block_ids"))
    block_size = _whole(answer, "block_size", 1, MAX_TOKENS)
    divisible = answer.get("divisible")
    if not isinstance(divisible, bool):
        raise Malformed("divisible is not true or false")
    # Whoever reads a part takes one block for so many tokens, from the front of each group.
    needed = -(-digests.tokens // block_size)
    if divisible and min(map(len, block_ids)) < needed:
        raise Malformed("block_ids has fewer blocks than the tokens need")
    deadline_s: Any = answer.get("deadline_s")
    # The comparison is false for a NaN, and fails for no whole number, however large.
    if type(deadline_s) not in (int, float) or not 0 < deadline_s <= MAX_DEADLINE_S:
        raise Malformed(f"deadline_s is not a number of seconds up to {MAX_DEADLINE_S:g}")
    return ReadAnswer(
        peer, digests, block_ids, block_size, divisible, float(deadline_s), _token(answer)
    )


def encode_token(token: str) -> bytes:
    """The body of a question that a token allows."""
    return encode({"token": token})


def decode_token(body: bytes) -> str:
    """The token in the body of a question.

    Raises:
        Malformed: there is none.
    """
    return _token(decode(body, MAX_BODY_BYTES))


def _token(values: Mapping[str, Any]) -> str:
    token = values.get("token")
    if not isinstance(token, str) or not TOKEN.fullmatch(token):
        raise Malformed("token is not a string of 1 to 256 printable characters")
    return token


def decode_purpose(body: bytes) -> Purpose:
    """What a lease is claimed for.

    Raises:
        Malformed: the body does not say.
    """
    purpose = decode(body, MAX_BODY_BYTES).get("for")
    for known in _PURPOSES:
        if purpose == known:
            return known
    raise Malformed(f"for is not {' or '.join(_PURPOSES)}")


def decode(body: bytes, limit_bytes: int) -> Mapping[str, Any]:
    """A JSON object.

    Raises:
        Malformed: it is something else, or longer than the limit.
    """
    if len(body) > limit_bytes:
        raise Malformed(f"the body has more than {limit_bytes} bytes")
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        # Not chained: the error holds the whole body.
        raise Malformed("the body is not JSON") from None
    if not isinstance(value, dict):
        raise Malformed("the body is not a JSON object")
    return value


def _peer(value: object) -> Peer:
    if not isinstance(value, dict):
        raise Malformed("peer is not an object")
    try:
        return peer_of(value)
    except HandleError as error:
        raise Malformed(f"peer: {error}") from None


def _digests(answer: Mapping[str, Any]) -> Digests:
    tokens = _whole(answer, "tokens", 1, MAX_TOKENS)
    if _whole(answer, "chunk", 1, MAX_TOKENS) != CHUNK_TOKENS:
        raise Malformed(f"chunk is not {CHUNK_TOKENS}: the other side is of another release")
    try:
        chunks = base64.b64decode(_text(answer, "chunks"), validate=True)
        tail = binascii.unhexlify(_text(answer, "tail"))
    except ValueError:
        raise Malformed("chunks is not base64, or tail is not hexadecimal") from None
    try:
        return Digests(tokens, chunks, tail)
    except ValueError:
        raise Malformed("chunks and tail are not the digests of so many tokens") from None


def _block_ids(value: object) -> tuple[tuple[int, ...], ...]:
    if not isinstance(value, list) or not 0 < len(value) <= MAX_GROUPS:
        raise Malformed(f"block_ids is not a list of 1 to {MAX_GROUPS} lists")
    if not all(isinstance(group, list) for group in value):
        raise Malformed("block_ids is not a list of lists")
    if not 0 < sum(map(len, value)) <= MAX_BLOCKS:
        raise Malformed(f"block_ids does not have 1 to {MAX_BLOCKS} blocks")
    for group in value:
        # By type and not by isinstance, for which True is a number.
        if group and (set(map(type, group)) != {int} or not 0 <= min(group) <= max(group)):
            raise Malformed("block_ids has something that is not a block")
        if group and max(group) > MAX_BLOCK_ID:
            raise Malformed(f"block_ids has a block above {MAX_BLOCK_ID}")
    return tuple(map(tuple, value))


def _whole(values: Mapping[str, Any], key: str, least: int, most: int) -> int:
    value = values.get(key)
    if type(value) is not int or not least <= value <= most:
        raise Malformed(f"{key} is not a whole number from {least} to {most}")
    return value


def _text(values: Mapping[str, Any], key: str) -> str:
    value = values.get(key)
    if not isinstance(value, str):
        raise Malformed(f"{key} is not a string")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(name)
