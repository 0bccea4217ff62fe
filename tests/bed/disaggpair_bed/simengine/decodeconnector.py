"""The scheduler half of our connector on a D: leases, and offers that are compared before a read.

What vLLM's classes and the block pool do is simulated; the leases, their digests and what stands
in the parameters are the connector's own modules.
"""

import json
import secrets
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from disaggpair_bed.simengine import promptdigests
from disaggpair_bed.simengine.connector import PullConnector
from disaggpair_bed.simengine.decisions import Finish, TransferSettings
from disaggpair_bed.simengine.handle import HandleMaker
from disaggpair_bed.simengine.job import Request
from disaggpair_bed.simengine.oracle import Oracle, State
from disaggpair_bed.simengine.pool import BlockPool
from disaggpair_bed.simengine.stats import Stats
from disaggpair_connector import contract, handle
from disaggpair_connector.book import LeaseBook
from disaggpair_connector.handle import Direct, HandleError, Offer
from disaggpair_connector.lease import EndReason, Lease, LeaseError

_BECAME: dict[EndReason, State] = {
    "read": "consumed",
    "direct": "consumed",
    "released": "released",
    "expired": "expired",
    "overdue": "expired",
    "reclaimed": "reclaimed",
    "reset": "reclaimed",
}


class DecodeConnector(PullConnector):
    """A D's connector.

    Args:
        book: the leases, which a listener shares.
        wall: clock of unix seconds.
    """

    def __init__(
        self,
        settings: TransferSettings,
        pool: BlockPool,
        handles: HandleMaker,
        stats: Stats,
        oracle: Oracle,
        *,
        book: LeaseBook,
        wall: Callable[[], float],
    ) -> None:
        super().__init__(settings, pool, handles, stats, oracle)
        self.book = book
        self.lease_port = 0
        """Where the book's listener serves; set once it does."""
        self._wall = wall
        self._lease_of: dict[str, str] = {}
        self._request_of: dict[str, str] = {}
        self._being_read: set[str] = set()
        self._direct: dict[str, str] = {}
        self._offers: set[tuple[str, str]] = set()
        self._seen = 0

    # Blocks and time.

    def give_up(self, missing: int) -> bool:
        """Give up the oldest lease, unless all of them together would not do."""
        self.settle()
        if missing <= self._pool.free_blocks:
            return True
        if missing > self._pool.free_blocks + self.book.granted_blocks:
            return False
        lease = self.book.reclaim()
        if lease is not None:
            self._unpin(lease)
        self._follow()
        return lease is not None

    def expire(self, now: float) -> None:
        """Each step settles, when there is one."""
        super().expire(now)
        self.settle()

    def settle(self) -> None:
        """Free the blocks of leases that ended by the clock, a reader or a router."""
        self.book.sweep()
        for lease in self.book.take_ended():
            self._unpin(lease)
        self._follow()

    def reset(self) -> None:
        """End the leases whose blocks are worth nothing any more."""
        self.book.reset()
        self.settle()

    @property
    def kept(self) -> int:
        """Leases of this engine."""
        return len(self._request_of)

    @property
    def must_poll(self) -> bool:
        """Whether leases are held, whose end may be what a waiting request waits for."""
        return bool(self._request_of)

    def _unpin(self, lease: Lease) -> None:
        blocks: list[int] = lease.block_ids[0].tolist()
        self._pool.release(blocks)

    def _follow(self) -> None:
        """Tell the oracle what became of the leases."""
        if self.book.sequence == self._seen:
            return
        lines, self._seen = self.book.events(self._seen)
        for line in lines:
            event = json.loads(line)
            lease_id = event["lease"]["id"]
            if event["type"] == "reading":
                self._being_read.add(lease_id)
            elif event["type"] == "ended":
                self._being_read.discard(lease_id)
                request_id = self._request_of.pop(lease_id)
                del self._lease_of[request_id]
                self._oracle.ended(request_id, _BECAME[event["reason"]])

    # The life of a request.

    def arrived(self, request: Request) -> None:
        """Check the parameters before the rest sees them."""
        if request.params:
            self._admit(request, request.params)
        super().arrived(request)

    def _admit(self, request: Request, params: dict[str, Any]) -> None:
        try:
            handle.conversation_of(params)
            leg = handle.decode_leg(params)
            if isinstance(leg, Direct):
                handle.alone(params)
                self._protect(request.id, leg)
            else:
                if not request.is_rejected:
                    self._check(request, leg)
                self._use_up(leg)
                handle.offered(params, leg)
        except HandleError as refusal:
            self._stats.refused(refusal.reason)
            handle.alone(params)

    def _check(self, request: Request, offer: Offer) -> None:
        left = offer.issued + offer.lease_s - self._wall()
        if not contract.EXPIRY_MARGIN_S <= left <= offer.lease_s + contract.EXPIRY_MARGIN_S:
            raise HandleError("late", f"P's lease has {left:.1f} s left")
        if offer.tokens != request.prompt_tokens:
            raise HandleError("tokens", f"{offer.tokens} tokens were offered")
        blocks = -(-offer.tokens // offer.block_size)
        if [len(group) for group in offer.block_ids] != [blocks]:
            raise HandleError("malformed", f"remote_block_ids has not {blocks} blocks")
        held = promptdigests.digests(request, offer.tokens)
        if handle.offer_digest(held, offer.peer, offer.block_ids, offer.block_size) != offer.digest:
            raise HandleError("tokens", "the blocks were offered for other tokens")

    def _use_up(self, offer: Offer) -> None:
        name = (offer.peer.engine_id, offer.peer.request_id)
        if name in self._offers:
            raise HandleError("used", "the blocks were offered to an earlier request")
        self._offers.add(name)

    def _protect(self, request_id: str, leg: Direct) -> None:
        if leg.lease is None or leg.token is None:
            return
        try:
            self.book.redeem_direct(leg.lease, leg.token)
        except LeaseError as error:
            self._stats.refused(error.code)
        else:
            self._direct[request_id] = leg.lease

    def allocated(self, request: Request, external: int) -> None:
        """Blocks were given to a request, which needs no lease on its history from here on."""
        super().allocated(request, external)
        self._stats.verified_tokens += external
        self._end_direct(request.id)

    def _end_direct(self, request_id: str) -> None:
        if (lease := self._direct.pop(request_id, None)) is not None:
            self.book.finish(lease, "direct")
            self.settle()

    def _over(self, request: Request) -> None:
        self._end_direct(request.id)

    def _keep(
        self, request: Request, finish: Finish, expiry: float
    ) -> tuple[bool, dict[str, Any] | None]:
        """Give a lease, which has its own references to the blocks, and let the request go."""
        self.leases.untrack(request.id)
        made = self._parameters(request, finish.role, expiry)
        (blocks,) = made.pop("remote_block_ids")
        self._pool.share(blocks)
        conversation = handle.conversation_of(request.params) or None
        lease = self.book.grant(
            id=secrets.token_hex(8),
            conversation=conversation,
            tokens=request.computed,
            block_ids=(array("I", blocks),),
            digests=promptdigests.digests(request, request.computed),
            handle=made,
            divisible=True,
            pinned=None,
        )
        self._lease_of[request.id] = lease.id
        self._request_of[lease.id] = request.id
        self._oracle.given(request.id, finish.role, request.computed, blocks, leaked=False)
        return False, handle.for_lease(lease, self.lease_port)

    # What peers ask for.

    def serve_read(self, request_id: str, blocks: Sequence[int]) -> bytes:
        """Copy blocks for a P that has redeemed the lease."""
        self.settle()
        lease = self._lease_of.get(request_id)
        if lease is not None and lease not in self._being_read:
            self._oracle.violation("read_without_lease", request_id)
        return super().serve_read(request_id, blocks)

    def serve_notify(self, request_id: str, *, read: bool = False) -> None:
        """P has read."""
        lease = self._lease_of.get(request_id)
        if lease is None or not self.book.finish(lease, "read"):
            self._stats.late_notifications += 1
        self.settle()
