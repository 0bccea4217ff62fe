"""The scheduler half of our connector on a P: its leases stand beside the pins of its requests."""

from typing import Any, Final

from disaggpair_bed.simengine.decisions import Finish
from disaggpair_bed.simengine.job import Request
from disaggpair_bed.simengine.pairconnector import BECAME, PairConnector
from disaggpair_connector import handle
from disaggpair_connector.handle import HandleError, LeaseHandle
from disaggpair_connector.lease import Lease, LeaseError
from disaggpair_connector.reads import Read

_SLACK_S: Final = 1.0
"""A read is not begun with less than this left of its time."""

_STEP_S: Final = 0.02
"""vLLM steps on while the blocks of a finished request are kept; here it is not as often."""


class PrefillConnector(PairConnector):
    """A P's connector."""

    # The life of a request.

    def _leg(self, request: Request, params: dict[str, Any]) -> LeaseHandle | None:
        found = handle.prefill_leg(params)
        if found is not None and not self._settings.bidirectional:
            raise HandleError("off", "bidirectional_kv_xfer is off here")
        return found

    def _clear(self, params: dict[str, Any]) -> None:
        handle.first_turn(params) if params.get("do_remote_decode") else params.clear()

    @property
    def _least_tokens(self) -> int:
        return self._settings.recompute_threshold

    def _begin_by(self, read: Read) -> float:
        return read.kept_until - _SLACK_S

    def _end_by(self, read: Read) -> float:
        return read.kept_until

    def allocated(self, request: Request, external: int) -> None:
        """Begin the read that was promised."""
        plan = self._verified.begin(request, external)
        if plan is not None and request.params is not None:
            handle.read_params(
                request.params, plan.peer, plan.block_ids, plan.tokens, of_prefill=False
            )
        super().allocated(request, external)

    def _over(self, request: Request) -> None:
        self._verified.forget(request)

    def _keep(
        self, request: Request, finish: Finish, expiry: float
    ) -> tuple[bool, dict[str, Any] | None]:
        """Pin the blocks, and give D a lease on them."""
        kept, made = super()._keep(request, finish, expiry)
        assert made is not None
        return kept, self._grant(request, made)

    def expire(self, now: float) -> None:
        """Settle, take in the answers that have come, and give them back at a standstill."""
        super().expire(now)
        self._verified.poll()
        if self._standstill.has_lasted:
            self._standstill.restart()
            self._verified.give_back_half()

    # Pins and leases.

    @property
    def is_read_from(self) -> bool:
        """vLLM goes to sleep once it keeps no request."""
        return len(self.leases) > 0

    def next_deadline(self) -> float | None:
        """Also soon while blocks are kept, whose leases D may end."""
        deadline = super().next_deadline()
        return deadline if deadline is None else min(deadline, self._clock() + _STEP_S)

    def _lease_ended(self, lease: Lease) -> None:
        """Unpin what nobody will read; what D has read is unpinned by its notification."""
        request_id = str(lease.handle["remote_request_id"])
        assert lease.ended is not None
        if self._lease_of.pop(request_id, None) is None or lease.ended == "read":
            return
        _, pinned = self.leases.notify(request_id)
        if pinned is not None:
            self._pool.release(pinned.blocks)
            self._oracle.ended(request_id, BECAME[lease.ended])

    def unpinned(self, request_id: str) -> None:
        """D has read, or took too long: the lease ends with the pin."""
        lease = self._lease_of.pop(request_id, None)
        if lease is None or self.book.finish(lease, "read"):
            return
        try:
            self.book.release(lease)
        except LeaseError:  # it has ended by itself meanwhile
            return
