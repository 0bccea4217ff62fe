"""The scheduler half of our connector on a P: D is asked what it holds before it is read.

What vLLM's classes do is simulated; what stands in the parameters, the question to D and what may
be read of the answer are the connector's own modules.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from disaggpair_bed.simengine import promptdigests
from disaggpair_bed.simengine.connector import PullConnector
from disaggpair_bed.simengine.decisions import Finish, TransferSettings
from disaggpair_bed.simengine.handle import HandleMaker
from disaggpair_bed.simengine.job import Request
from disaggpair_bed.simengine.oracle import Oracle
from disaggpair_bed.simengine.pool import BlockPool
from disaggpair_bed.simengine.stats import Stats
from disaggpair_connector import contract, handle
from disaggpair_connector.handle import HandleError, LeaseHandle, Refusal
from disaggpair_connector.transfer_plan import Readable, plan_read
from disaggpair_connector.wire import Declined, ReadAnswer

_SLACK_S: Final = 1.0
"""A read is not begun with less than this left of its time."""


class Ticket(Protocol):
    """A question to the owner of a lease."""

    def done(self) -> bool:
        """Whether there is an answer."""
        ...

    def result(self) -> ReadAnswer | Declined:
        """The answer."""
        ...

    def cancel(self) -> None:
        """Give the lease back, if the answer grants it."""
        ...


class Reader(Protocol):
    """Asks the owners of leases; `disaggpair_connector.reader` does so over sockets."""

    def ask(self, host: str, port: int, lease: str, token: str) -> Ticket:
        """Ask for the right to read."""
        ...

    def release(self, host: str, port: int, lease: str, token: str) -> None:
        """Give a lease back."""
        ...


@dataclass(slots=True)
class _Read:
    """A read from D, from the question on."""

    handle: LeaseHandle
    ticket: Ticket
    asked: float
    plan: Readable | None = None
    deadline: float = 0.0
    is_begun: bool = False


class PrefillConnector(PullConnector):
    """A P's connector.

    Args:
        reader: asks the owners of leases.
        clock: the clock of the core's steps.
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
        reader: Reader,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        super().__init__(settings, pool, handles, stats, oracle)
        self._reader = reader
        self._clock = clock
        self._wall = wall
        self._asked: dict[str, _Read] = {}

    @property
    def must_poll(self) -> bool:
        """Whether D was asked something that a request waits for."""
        return any(not read.is_begun for read in self._asked.values())

    def arrived(self, request: Request) -> None:
        """Check the parameters before the rest sees them, and ask for the lease that they name."""
        params = request.params
        if params:
            if (found := self._admit(params)) is not None:
                self._ask(request, found)
            handle.first_turn(params) if params.get("do_remote_decode") else params.clear()
        super().arrived(request)

    def _admit(self, params: dict[str, Any]) -> LeaseHandle | None:
        try:
            handle.conversation_of(params)
            found = handle.prefill_leg(params)
        except HandleError as refusal:
            self._stats.refused(refusal.reason)
            return None
        if found is not None and not self._settings.bidirectional:
            self._stats.refused("off")
            return None
        return found

    def _ask(self, request: Request, found: LeaseHandle) -> None:
        where = (found.host, found.port, found.lease, found.token)
        if found.is_release:
            self._reader.release(*where)
        else:
            now = self._clock()
            self._asked[request.id] = _Read(found, self._reader.ask(*where), now)

    def matched_tokens(self, request: Request) -> int | None:
        """Tokens to read beyond the local ones; None while D has not answered."""
        read = self._asked.get(request.id)
        if read is None:
            return 0
        if read.plan is None:
            if not read.ticket.done():
                return None
            self._settle(request, read, read.ticket.result())
        if read.plan is None:
            return 0
        tokens = min(read.plan.tokens, request.prompt_tokens) - request.computed
        if self._clock() > read.deadline - _SLACK_S:
            self._drop(request.id, "late")
        elif tokens < max(1, self._settings.recompute_threshold):
            self._drop(request.id, "short")
        else:
            return tokens
        return 0

    def _settle(self, request: Request, read: _Read, answer: ReadAnswer | Declined) -> None:
        if isinstance(answer, Declined):
            del self._asked[request.id]
            self._stats.refused(answer.reason)
            return
        read.deadline = read.asked + answer.deadline_s
        proven = promptdigests.held_by(request, answer.digests)
        read.plan = plan_read(proven, answer, block_size=self._pool.block_size, divisible=True)
        if read.plan is None:
            self._drop(request.id, "tokens")

    def allocated(self, request: Request, external: int) -> None:
        """Begin the read that was promised."""
        read = self._asked.get(request.id)
        if read is not None and not read.is_begun and read.plan is not None:
            if external > 0 and request.params is not None:
                read.is_begun = True
                self._stats.verified_tokens += external
                plan = read.plan
                handle.read_params(request.params, plan.peer, plan.block_ids, plan.tokens)
            else:
                self._drop(request.id, "short")
        super().allocated(request, external)

    def _read_deadline(self, request: Request) -> float | None:
        read = self._asked.get(request.id)
        return None if read is None else read.deadline

    def received(self, request_id: str, data: bytes | None, now: float) -> bytes | None:
        """The read of a request has ended; what came after D may have freed the blocks is nothing.

        Blocks that come in time need the lease no longer: D has ended it with the read.
        """
        data = super().received(request_id, data, now)
        read = self._asked.get(request_id)
        if read is not None and (data is None or now >= read.deadline):
            self._drop(request_id, "failed")
            return None
        self._asked.pop(request_id, None)
        return data

    def _over(self, request: Request) -> None:
        read = self._asked.pop(request.id, None)
        if read is not None and not read.is_begun:
            read.ticket.cancel()

    def _keep(
        self, request: Request, finish: Finish, expiry: float
    ) -> tuple[bool, dict[str, Any] | None]:
        """Add what D compares before it reads."""
        conversation = handle.conversation_of(request.params)
        kept, made = super()._keep(request, finish, expiry)
        if made is not None:
            held = promptdigests.digests(request, made["remote_num_tokens"])
            size = self._pool.block_size
            peer = handle.peer_of(made)
            made[contract.PAIR_PARAMS] = {
                **({"conversation": conversation} if conversation else {}),
                "digest": handle.offer_digest(held, peer, made["remote_block_ids"], size),
                "tokens": held.tokens,
                "block_size": size,
                "issued": self._wall(),
                "lease_s": self._settings.prefill_lease_s,
            }
        return kept, made

    def _drop(self, request_id: str, reason: Refusal) -> None:
        """Give the lease back: D frees its blocks at once instead of at the deadline."""
        read = self._asked.pop(request_id)
        found = read.handle
        self._reader.release(found.host, found.port, found.lease, found.token)
        self._stats.refused(reason)
