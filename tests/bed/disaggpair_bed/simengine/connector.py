"""The KV connector of one engine: leases for peers, and what is asked of peers.

Both halves of vLLM's NIXL pull connector as far as they decide something; moving the bytes is
left to whoever takes the jobs. `pairconnector` and its two roles are ours, on top of it.
"""

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from disaggpair_bed.simengine import decisions
from disaggpair_bed.simengine.decisions import (
    Ending,
    EngineCrash,
    Finish,
    Queued,
    TransferSettings,
)
from disaggpair_bed.simengine.handle import HandleMaker
from disaggpair_bed.simengine.heartbeats import Heartbeats
from disaggpair_bed.simengine.identity import NOBODY, Identity
from disaggpair_bed.simengine.job import NotifyJob, Peer, ReadJob, Request, Sampling
from disaggpair_bed.simengine.leases import LeaseTable
from disaggpair_bed.simengine.oracle import Oracle
from disaggpair_bed.simengine.pool import BlockPool
from disaggpair_bed.simengine.stats import Stats

LATE_S: Final = 1.0
"""A lease that is not over so long after its time is one that will never be."""


class PullConnector:
    """The connector of one core, on whose pool it pins blocks."""

    def __init__(
        self,
        settings: TransferSettings,
        pool: BlockPool,
        handles: HandleMaker,
        stats: Stats,
        oracle: Oracle,
    ) -> None:
        self.leases = LeaseTable()
        self.heartbeats = Heartbeats(
            settings.prefill_lease_s, enabled=handles.release.has_lease_settings
        )
        self._settings = settings
        self._pool = pool
        self._handles = handles
        self._stats = stats
        self._oracle = oracle
        self._reads: list[ReadJob] = []
        self._notifies: list[NotifyJob] = []

    # The life of a request.

    def arrived(self, request: Request) -> None:
        """A request was queued: its peer's lease is renewed from now on."""
        self.heartbeats.start(request.id, request.params)

    def matched_tokens(self, request: Request) -> int | None:
        """Tokens that are promised from a peer beyond those in the cache; None: not known yet.

        Raises:
            EngineCrash: the parameters cannot be reckoned with.
        """
        return decisions.matched_tokens(
            request.params, request.prompt_tokens, request.computed, self._settings
        )

    def allocated(self, request: Request, external: int) -> None:
        """Blocks were given to a request: queue a read of them, a notification or nothing.

        Raises:
            EngineCrash: tokens were promised and there is nothing to read.
        """
        params = request.params
        if decisions.starts_tracking(params, self._settings):
            self.leases.track(request.id)
        queued = decisions.after_allocation(params, external, self._settings)
        if params is None or queued is Queued.NOTHING:
            return
        notify = notify_job(request.id, params)
        if queued is Queued.NOTIFY:
            self._notifies.append(notify)
            return
        self._reads.append(
            ReadJob(
                request.id,
                notify.peer,
                notify.remote_request_id,
                tuple(request.blocks[request.local_hit // self._pool.block_size :]),
                params["remote_block_ids"],
                params.get("remote_blocks_expiry_time"),
                request.identity,
            )
        )

    def is_late(self, request_id: str, now: float) -> bool:
        """Whether nothing may be read any more for a request."""
        return False

    def received(self, request_id: str, data: bytes | None, now: float) -> bytes | None:
        """The read of a request has ended: what of it may be used; None when it went wrong."""
        self.heartbeats.stop(request_id)
        return data

    def aborted_while_parked(self, request: Request) -> None:
        """A request ended whose KV is on its way."""
        self.heartbeats.stop(request.id)
        self.leases.untrack(request.id)

    def finished(
        self, request: Request, ending: Ending, now: float
    ) -> tuple[bool, dict[str, Any] | None]:
        """A request ended: whether its blocks stay pinned, and the parameters to return.

        Raises:
            EngineCrash: its peer has to be told and is not named.
        """
        self.heartbeats.stop(request.id)
        self._over(request)
        params = request.params
        finish = decisions.at_finish(params, ending, len(request.blocks), self._settings)
        if finish.notify_peer and params is not None:
            self._notifies.append(notify_job(request.id, params))
        if finish.pin_s is None:
            self.leases.untrack(request.id)
            return False, None
        return self._keep(request, finish, now + finish.pin_s)

    def _over(self, request: Request) -> None:
        """A request is over, before its blocks are."""

    def _keep(
        self, request: Request, finish: Finish, expiry: float
    ) -> tuple[bool, dict[str, Any] | None]:
        """Keep the blocks of a request for a peer; as `finished`."""
        lease = self.leases.pin(request.id, finish.role, request.blocks, expiry)
        leaked = lease.deadline is None
        self._oracle.given(
            request.id,
            finish.role,
            request.computed,
            request.blocks,
            leaked=leaked,
            identity=request.identity,
        )
        return True, self._parameters(request, finish.role, expiry)

    def _parameters(self, request: Request, role: str, expiry: float) -> dict[str, Any]:
        """What is returned for the blocks of a request."""
        held = request.blocks[: -(-request.computed // self._pool.block_size)]
        return self._handles.make(request.id, role, held, request.computed, expiry, request.cached)

    def refused(self, params: dict[str, Any]) -> None:
        """A request was refused before it was queued: its peer may free.

        As in vLLM, where a request of one token stands for it and is over at once.

        Raises:
            EngineCrash: the peer is not named.
        """
        one = array("Q", [0])
        request = Request(
            "refused", len(one), one, Sampling(max_tokens=1), params, is_rejected=True
        )
        self.arrived(request)
        self.finished(request, Ending.ABORTED, 0.0)

    # What peers ask for.

    def serve_read(
        self, request_id: str, blocks: Sequence[int], reader: Identity = NOBODY
    ) -> bytes:
        """Copy blocks for a peer, as they are now, and end the lease behind them.

        Raises:
            IndexError: a block outside the pool.
        """
        data = b"".join(self._pool.read(block) for block in blocks)
        self._oracle.read(request_id, blocks, reader)
        self.serve_notify(request_id, read=True)
        return data

    def serve_notify(self, request_id: str, *, read: bool = False) -> None:
        """A peer is done with the blocks of a request."""
        known, lease = self.leases.notify(request_id)
        if not known:
            self._stats.late_notifications += 1
        elif lease is not None:
            self._pool.release(lease.blocks)
            self._oracle.ended(request_id, "consumed" if read else "released")
            self.unpinned(request_id)

    def serve_heartbeat(self, request_ids: Sequence[str], now: float) -> None:
        """A peer still waits for the blocks of these requests."""
        self.leases.extend(request_ids, now + self._settings.prefill_lease_s * 2 // 3)

    # What is kept.

    def kept_blocks(self) -> set[int]:
        """Blocks that are kept for peers."""
        return {block for lease in self.leases for block in lease.blocks}

    def overdue(self, now: float) -> list[str]:
        """Requests whose blocks are kept beyond their time, or without one."""
        return [
            lease.request_id
            for lease in self.leases
            if lease.deadline is None or lease.deadline + LATE_S < now
        ]

    # Blocks and time.

    def unpinned(self, request_id: str) -> None:
        """The blocks that were kept of a request are free."""

    def give_up(self, missing: int) -> bool:
        """Free some blocks that are only kept, as so many are missing; False if none can be."""
        return False

    def got_blocks(self) -> None:
        """A request has its blocks."""

    def missed_blocks(self) -> None:
        """A request has not."""

    def settle(self) -> None:
        """Free the blocks of leases that others have ended."""

    def reset(self) -> None:
        """The prefix cache is about to be forgotten."""

    @property
    def kept(self) -> int:
        """Leases of this engine."""
        return len(self.leases)

    @property
    def is_read_from(self) -> bool:
        """Whether a sleep has to wait: somebody reads here, or will."""
        return False

    @property
    def must_poll(self) -> bool:
        """Whether a waiting request may become ready without a message to this engine."""
        return False

    def expire(self, now: float) -> None:
        """Free the blocks whose time is up."""
        for lease in self.leases.expire(now):
            self._pool.release(lease.blocks)
            self._stats.expired_requests += 1
            self._oracle.ended(lease.request_id, "expired")
            self.unpinned(lease.request_id)

    def next_deadline(self) -> float | None:
        """When leases or heartbeats are due."""
        deadlines = (self.leases.next_deadline(), self.heartbeats.next_deadline())
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def take_jobs(self) -> tuple[list[ReadJob], list[NotifyJob]]:
        """What is to be sent since the last call."""
        jobs = (self._reads, self._notifies)
        self._reads, self._notifies = [], []
        return jobs


MakeConnector = Callable[[TransferSettings, BlockPool, HandleMaker, Stats, Oracle], PullConnector]


def notify_job(request_id: str, params: Mapping[str, Any]) -> NotifyJob:
    """The peer that some parameters name.

    Raises:
        EngineCrash: a key is missing, which vLLM finds out by a KeyError.
    """
    try:
        peer = Peer(
            str(params["remote_engine_id"]), str(params["remote_host"]), params["remote_port"]
        )
        return NotifyJob(request_id, peer, str(params["remote_request_id"]))
    except KeyError as missing:
        raise EngineCrash(f"KeyError: {missing}") from None
