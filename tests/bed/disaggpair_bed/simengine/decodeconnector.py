"""The scheduler half of our connector on a D: its leases hold the blocks of finished requests."""

from typing import Any, Final

from disaggpair_bed.simengine.decisions import Finish
from disaggpair_bed.simengine.job import Request
from disaggpair_bed.simengine.pairconnector import BECAME, PairConnector
from disaggpair_connector import handle
from disaggpair_connector.handle import Direct, LeaseHandle
from disaggpair_connector.kept import Kept, heartbeat_margin_s
from disaggpair_connector.lease import Lease, LeaseError
from disaggpair_connector.reads import Read

HUNG_READ_S: Final = 300.0
"""A read of P's blocks that takes longer counts as failed."""


class DecodeConnector(PairConnector):
    """A D's connector."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._direct: dict[str, str] = {}
        """Leases of direct turns that wait for their blocks, by request."""
        self._at_p = Kept(self._settings.prefill_lease_s * 2 // 3, HUNG_READ_S)
        self._beaten: float | None = None

    # Blocks.

    def give_up(self, missing: int) -> bool:
        """Give up the oldest lease, unless all of them together would not do."""
        self.settle()
        if missing <= self._pool.free_blocks:
            return True
        stands_still = self._standstill.has_lasted
        held = self.book.blocks if stands_still else self.book.granted_blocks
        if missing > self._pool.free_blocks + held:
            return False
        lease = self.book.reclaim(claimed=stands_still)
        if lease is None:
            return False
        self._lease_ended(lease)
        return True

    def reset(self) -> None:
        """End the leases whose blocks are worth nothing any more."""
        self.book.reset()
        self.settle()

    @property
    def is_read_from(self) -> bool:
        """The reset of the cache before a sleep waits for readers."""
        self.settle()
        return self.book.counts()["reading"] > 0

    @property
    def kept(self) -> int:
        """Leases of this engine."""
        return len(self._lease_of)

    def kept_blocks(self) -> set[int]:
        """Blocks of the leases, which the oracle knows while it records."""
        handles = (self._oracle.handles.get(request_id) for request_id in self._lease_of)
        return {block for handle in handles if handle is not None for block in handle.blocks}

    def _lease_ended(self, lease: Lease) -> None:
        request_id = str(lease.handle["remote_request_id"])
        del self._lease_of[request_id]
        blocks: list[int] = lease.block_ids[0].tolist()
        self._pool.release(blocks)
        assert lease.ended is not None
        self._oracle.ended(request_id, BECAME[lease.ended])

    # The life of a request.

    def _leg(self, request: Request, params: dict[str, Any]) -> LeaseHandle | None:
        leg = handle.decode_leg(params)
        if not isinstance(leg, Direct):
            return leg
        self._protect(request, leg)
        return None

    def _clear(self, params: dict[str, Any]) -> None:
        handle.alone(params)

    def _protect(self, request: Request, leg: Direct) -> None:
        if leg.lease is None or leg.token is None:
            return
        try:
            lease = self.book.redeem_direct(leg.lease, leg.token)
        except LeaseError as error:
            self._stats.refused(error.code)
        else:
            self._direct[request.id] = leg.lease
            if request.is_rejected:  # it ends at once and computes nothing
                return
            self._oracle.continued(str(lease.handle["remote_request_id"]), request.identity)

    @property
    def _least_tokens(self) -> int:
        return 1

    def _answered(self, read: Read) -> None:
        """Keep P's blocks by heartbeats while the request waits for its own."""
        plan = read.plan
        assert plan is not None
        request: Request = read.request
        assert request.params is not None
        self._at_p.answered(request.id, read.kept_until)
        handle.read_params(request.params, plan.peer, plan.block_ids, plan.tokens, of_prefill=True)
        self.heartbeats.start(request.id, request.params)

    def _begin_by(self, read: Read) -> float:
        """P keeps the blocks for a time, and for another after each heartbeat."""
        assert read.answer is not None
        margin_s = heartbeat_margin_s(read.answer.deadline_s)
        return self._at_p.until(read.request.request_id) - margin_s

    def _end_by(self, read: Read) -> float:
        return self._at_p.begin(read.request.request_id, self._clock())

    def allocated(self, request: Request, external: int) -> None:
        """Blocks were given to a request, which needs no lease on its history from here on."""
        if self._verified.begin(request, external) is None and request.params:
            handle.alone(request.params)
            self.heartbeats.stop(request.id)
            self._at_p.forget(request.id)
        super().allocated(request, external)
        self._end_direct(request.id)

    def expire(self, now: float) -> None:
        """Settle, take in the answers that have come, and what the last heartbeat has gained."""
        super().expire(now)
        self._verified.poll()
        if self.heartbeats.last != self._beaten:
            self._beaten = self.heartbeats.last
            self._deadlines.update(self._at_p.beat(now))

    def received(self, request_id: str, data: bytes | None, now: float) -> bytes | None:
        """The read of a request has ended."""
        self._at_p.forget(request_id)
        return super().received(request_id, data, now)

    def _end_direct(self, request_id: str) -> None:
        if (lease := self._direct.pop(request_id, None)) is not None:
            self.book.finish(lease, "direct")
            self.settle()

    def aborted_while_parked(self, request: Request) -> None:
        """A request ended whose KV is on its way; no heartbeat keeps P's blocks any more."""
        super().aborted_while_parked(request)
        self._at_p.forget(request.id)

    def _over(self, request: Request) -> None:
        self._end_direct(request.id)
        self._at_p.forget(request.id)
        if self._verified.forget(request) and request.params:
            handle.alone(request.params)

    def _keep(
        self, request: Request, finish: Finish, expiry: float
    ) -> tuple[bool, dict[str, Any] | None]:
        """Give a lease, which has its own references to the blocks, and let the request go."""
        self.leases.untrack(request.id)
        made = self._parameters(request, finish.role, expiry)
        (blocks,) = made["remote_block_ids"]
        self._pool.share(blocks)
        self._oracle.given(
            request.id,
            finish.role,
            request.computed,
            blocks,
            leaked=False,
            identity=request.identity,
        )
        return False, self._grant(request, made)

    # What peers ask for.

    def serve_notify(self, request_id: str, *, read: bool = False) -> None:
        """P has read."""
        lease = self._lease_of.get(request_id)
        if lease is None or not self.book.finish(lease, "read"):
            self._stats.late_notifications += 1
        self.settle()
