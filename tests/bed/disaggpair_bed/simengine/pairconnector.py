"""The scheduler half of our connector, as far as both roles have it: leases and verified reads.

What vLLM's classes and the block pool do is simulated. The leases, the questions to their owners,
the digests and what stands in the parameters are the connector's own modules.
"""

import json
import logging
import secrets
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from disaggpair_bed.simengine import promptdigests
from disaggpair_bed.simengine.connector import LATE_S, PullConnector
from disaggpair_bed.simengine.decisions import TransferSettings
from disaggpair_bed.simengine.handle import HandleMaker
from disaggpair_bed.simengine.identity import NOBODY, Identity
from disaggpair_bed.simengine.job import NotifyJob, ReadJob, Request
from disaggpair_bed.simengine.oracle import Oracle, State
from disaggpair_bed.simengine.pool import BlockPool
from disaggpair_bed.simengine.stats import Stats
from disaggpair_connector import handle
from disaggpair_connector.book import LeaseBook
from disaggpair_connector.handle import HandleError, LeaseHandle
from disaggpair_connector.lease import EndReason, Lease
from disaggpair_connector.reads import Read, Reader, Reads
from disaggpair_connector.standstill import Standstill

BECAME: Final[dict[EndReason, State]] = {
    "read": "consumed",
    "direct": "consumed",
    "released": "released",
    "expired": "expired",
    "overdue": "expired",
    "reclaimed": "reclaimed",
    "reset": "reclaimed",
}

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Ended:
    """Reads that have ended, as vLLM's worker reports them."""

    finished_recving: frozenset[str]
    failed_recving: frozenset[str]


class PairConnector(PullConnector, ABC):
    """Our connector on either role.

    Args:
        book: the leases, which a listener shares.
        reader: asks the owners of leases.
        clock: the clock of the core's steps.
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
        reader: Reader,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(settings, pool, handles, stats, oracle)
        self.book = book
        self.lease_port = 0
        """Where the book's listener serves; set once it does."""
        self._reader = reader
        self._clock = clock
        self._standstill = Standstill(clock)
        self._lease_of: dict[str, str] = {}
        self._deadlines: dict[str, float] = {}
        self._verified = Reads(
            reader,
            stats,
            promptdigests.held_by,
            block_size=pool.block_size,
            divisible=True,
            clock=clock,
            begin_by=self._begin_by,
            end_by=self._end_by,
            log=logger,
            answered=self._answered,
        )

    @abstractmethod
    def _begin_by(self, read: Read) -> float:
        """Until when a read may begin."""

    @abstractmethod
    def _end_by(self, read: Read) -> float:
        """Until when a read that begins now may end."""

    def _answered(self, read: Read) -> None:
        """There is something to read."""

    # The life of a request.

    def arrived(self, request: Request) -> None:
        """Check the parameters before the rest sees them, and ask for the lease that they name."""
        found = self._admit(request, request.params) if request.params else None
        super().arrived(request)
        if found is None:
            return
        if request.is_rejected:
            self._reader.release(found.host, found.port, found.lease, found.token)
        else:
            self._verified.ask(request, found)

    def _admit(self, request: Request, params: dict[str, Any]) -> LeaseHandle | None:
        try:
            handle.conversation_of(params)
            return self._leg(request, params)
        except HandleError as refusal:
            self._stats.refused(refusal.reason)
            return None
        finally:
            self._clear(params)

    @abstractmethod
    def _leg(self, request: Request, params: dict[str, Any]) -> LeaseHandle | None:
        """The lease that is to be asked for.

        Raises:
            HandleError: the parameters are not used.
        """

    @abstractmethod
    def _clear(self, params: dict[str, Any]) -> None:
        """Leave nothing in the parameters that names blocks."""

    def matched_tokens(self, request: Request) -> int | None:
        """Tokens to read beyond the local ones; None while there is no answer."""
        tokens, _ = self._verified.tokens(request, request.computed, self._least_tokens)
        return tokens

    @property
    @abstractmethod
    def _least_tokens(self) -> int:
        """Fewer than so many are computed instead."""

    def take_jobs(self) -> tuple[list[ReadJob], list[NotifyJob]]:
        """What is to be sent, and until when new reads have to have ended."""
        now = self._clock()
        for request_id, left in self._verified.take_deadlines().items():
            self._deadlines[request_id] = now + left
        return super().take_jobs()

    def is_late(self, request_id: str, now: float) -> bool:
        """Whether the owner may have the blocks back."""
        return now >= self._deadlines[request_id]

    def received(self, request_id: str, data: bytes | None, now: float) -> bytes | None:
        """The read of a request has ended; what came after its deadline is nothing."""
        data = super().received(request_id, data, now)
        if self.is_late(request_id, now):
            data = None
        del self._deadlines[request_id]
        ended = frozenset([request_id])
        self._verified.ended(_Ended(ended, ended if data is None else frozenset()))
        return data

    def aborted_while_parked(self, request: Request) -> None:
        """A request ended whose KV is on its way; the read goes on."""
        super().aborted_while_parked(request)
        self._verified.forget(request)

    def got_blocks(self) -> None:
        """Not at a standstill."""
        self._standstill.got()

    def missed_blocks(self) -> None:
        """At a standstill, if nobody else has any either."""
        self._standstill.missed()

    @property
    def must_poll(self) -> bool:
        """vLLM steps on while requests wait: for an answer, or for the blocks of a lease."""
        return True

    # Leases.

    def _grant(self, request: Request, made: dict[str, Any]) -> dict[str, Any]:
        """A lease on the blocks in parameters that were made, and the parameters that name it."""
        blocks = tuple(array("I", group) for group in made.pop("remote_block_ids"))
        lease = self.book.grant(
            id=secrets.token_hex(8),
            conversation=handle.conversation_of(request.params) or None,
            tokens=request.computed,
            block_ids=blocks,
            digests=promptdigests.digests(request, request.computed),
            handle=made,
            divisible=True,
            pinned=None,
        )
        self._lease_of[request.id] = lease.id
        return handle.for_lease(lease, self.lease_port)

    def expire(self, now: float) -> None:
        """Each step settles, when there is one."""
        super().expire(now)
        self.settle()

    def settle(self) -> None:
        """Free the blocks of leases that ended by the clock, a reader or a router."""
        self.book.sweep()
        for lease in self.book.take_ended():
            self._lease_ended(lease)

    @abstractmethod
    def _lease_ended(self, lease: Lease) -> None:
        """A lease has ended, and why."""

    def overdue(self, now: float) -> list[str]:
        """As before, and what is kept without a lease or beyond its time."""
        self.settle()
        listing = json.loads(self.book.listing())
        late = listing["now"] - LATE_S
        current = {
            shown["id"]
            for shown in listing["leases"]
            if (shown["deadline"] or shown["expires"]) >= late
        }
        kept = [request for request, lease in self._lease_of.items() if lease not in current]
        return [*super().overdue(now), *kept]

    def serve_read(
        self, request_id: str, blocks: Sequence[int], reader: Identity = NOBODY
    ) -> bytes:
        """Copy blocks for a peer that has redeemed the lease."""
        self.settle()
        lease = self._lease_of.get(request_id)
        if lease is not None and self._oracle.enabled and not self._is_being_read(lease):
            self._oracle.violation("read_without_lease", request_id)
        return super().serve_read(request_id, blocks, reader)

    def _is_being_read(self, lease: str) -> bool:
        listing = json.loads(self.book.listing())
        return any(
            shown["id"] == lease and shown["state"] == "reading" for shown in listing["leases"]
        )
