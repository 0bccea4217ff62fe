"""A lease: blocks that D keeps for the next turn of a conversation, and how it is shown.

Pure. `table` makes and changes leases; nobody else does.
"""

import hmac
import json
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypedDict

from disaggpair_connector.digest import Digests

State = Literal["granted", "claimed", "reading"]
Purpose = Literal["read", "direct"]
EndReason = Literal["read", "direct", "released", "expired", "reclaimed", "reset", "overdue"]
Refusal = Literal["unknown", "taken", "token"]

ENCODE: Final = json.JSONEncoder(separators=(",", ":")).encode


class Terms(TypedDict):
    """What a lease is granted on."""

    id: str
    conversation: str | None
    tokens: int
    block_ids: Iterable[Sequence[int]]
    """The blocks of each group of the cache, in the order of the tokens."""

    digests: Digests
    """Of the first `tokens` tokens."""

    handle: Mapping[str, Any]
    """vLLM's parameters for a reader. Opaque here."""

    divisible: bool
    """Whether the first of the blocks are of use without the others."""

    pinned: object
    """What the pool gave for the blocks. Opaque here."""


class LeaseError(Exception):
    """A lease is not to be had.

    code: "unknown" if there is none of this id (any more), "taken" if another holds it or it was
    used, "token" if the token is not the lease's.
    """

    def __init__(self, code: Refusal) -> None:
        super().__init__(code)
        self.code: Refusal = code


@dataclass(slots=True, eq=False, repr=False)  # without a repr, no token reaches a log
class Lease:
    """A lease under its terms. Times are seconds of the table's clock."""

    id: str
    conversation: str | None
    tokens: int
    block_ids: "tuple[array[int], ...]"
    digests: Digests
    handle: Mapping[str, Any]
    divisible: bool
    pinned: object
    serial: int
    """Place in the order of grants."""

    created: float
    expires: float
    token: str
    used: bool = False
    """Whether the token has been redeemed: it then only releases."""

    state: State = "granted"
    deadline: float | None = None
    """Until when a claimed or reading lease is safe from `reclaim`."""

    purpose: Purpose | None = None
    ended: EndReason | None = None
    text: bytes = b""
    """The lease as JSON, as of its last change."""

    @property
    def blocks(self) -> int:
        """Blocks in all groups."""
        return sum(map(len, self.block_ids))

    def has_token(self, given: str) -> bool:
        """Whether it is this one's; takes a time that does not depend on where they differ."""
        return hmac.compare_digest(given.encode(errors="surrogatepass"), self.token.encode())

    @property
    def due(self) -> float:
        """When it changes if nobody does anything."""
        return self.expires if self.deadline is None else self.deadline


def granted(terms: Terms, *, serial: int, created: float, ttl_s: float, token: str) -> Lease:
    """A new lease on these terms, its block ids packed."""
    return Lease(
        id=terms["id"],
        conversation=terms["conversation"],
        tokens=terms["tokens"],
        block_ids=tuple(array("I", group) for group in terms["block_ids"]),
        digests=terms["digests"],
        handle=terms["handle"],
        divisible=terms["divisible"],
        pinned=terms["pinned"],
        serial=serial,
        created=created,
        expires=created + ttl_s,
        token=token,
    )


def lease_text(lease: Lease, unix_offset_s: float) -> bytes:
    """A lease as JSON. It has no token.

    Args:
        lease: what to show.
        unix_offset_s: what to add to a time of the table for unix seconds.
    """
    deadline = lease.deadline
    shown = {
        "id": lease.id,
        "conversation": lease.conversation,
        "state": lease.state,
        "tokens": lease.tokens,
        "blocks": lease.blocks,
        "created": round(lease.created + unix_offset_s, 3),
        "expires": round(lease.expires + unix_offset_s, 3),
        "deadline": None if deadline is None else round(deadline + unix_offset_s, 3),
    }
    return ENCODE(shown).encode()
