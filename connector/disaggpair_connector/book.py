"""The table of leases behind one lock, for the scheduler's thread and the listener's threads.

Each method is the table's of the same name. A lease that comes out is a copy: the table's own may
change in another thread before the caller has looked at it.
"""

import secrets
import threading
import time
from collections.abc import Callable
from copy import copy
from typing import TypeVar, Unpack

from disaggpair_connector.counters import Counters
from disaggpair_connector.events import event_line
from disaggpair_connector.lease import EndReason, Lease, Purpose, State, Terms
from disaggpair_connector.ledger import joined
from disaggpair_connector.table import LeaseTable

T = TypeVar("T")


class LeaseBook:
    """Arguments as for LeaseTable; `wall_clock` gives unix seconds and is asked once."""

    def __init__(
        self,
        *,
        epoch: str,
        ttl_s: float,
        claim_s: float,
        read_s: float,
        grace_s: float = 2.0,
        kept_events: int = 16384,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        new_token: Callable[[], str] = secrets.token_urlsafe,
    ) -> None:
        self._table = LeaseTable(
            clock=clock,
            new_token=new_token,
            epoch=epoch,
            ttl_s=ttl_s,
            claim_s=claim_s,
            read_s=read_s,
            grace_s=grace_s,
            kept_events=kept_events,
            unix_offset_s=wall_clock() - clock(),
        )
        self._longest_read_s = read_s + grace_s + 1.0
        self._changed = threading.Condition(threading.Lock())
        self._closed = False

    @property
    def epoch(self) -> str:
        """Names this book among all that ever were."""
        return self._table.epoch

    @property
    def sequence(self) -> int:
        """Number of the last event."""
        return self._table.sequence

    @property
    def granted_blocks(self) -> int:
        """Blocks in leases that `reclaim` would give."""
        return self._table.granted_blocks

    @property
    def blocks(self) -> int:
        """Blocks in all leases."""
        return self._table.blocks

    @property
    def closed(self) -> bool:
        """Whether the engine is ending."""
        return self._closed

    def close(self) -> None:
        """Wake all waiters, for good. Leases stay as they are."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def grant(self, **terms: Unpack[Terms]) -> Lease:
        """LeaseTable.grant."""
        return self._locked(lambda: copy(self._table.grant(**terms)))

    def claim(self, lease_id: str, purpose: Purpose) -> Lease:
        """LeaseTable.claim."""
        return self._locked(lambda: copy(self._table.claim(lease_id, purpose)))

    def read(self, lease_id: str, token: str) -> Lease:
        """LeaseTable.read."""
        return self._locked(lambda: copy(self._table.read(lease_id, token)))

    def redeem_direct(self, lease_id: str, token: str) -> Lease:
        """LeaseTable.redeem_direct."""
        return self._locked(lambda: copy(self._table.redeem_direct(lease_id, token)))

    def release(self, lease_id: str, token: str | None = None) -> None:
        """LeaseTable.release."""
        self._locked(lambda: self._table.release(lease_id, token))

    def finish_read(self, lease_id: str, token: str) -> None:
        """LeaseTable.finish_read."""
        self._locked(lambda: self._table.finish_read(lease_id, token))

    def finish(self, lease_id: str, reason: EndReason) -> bool:
        """LeaseTable.finish."""
        return self._locked(lambda: self._table.finish(lease_id, reason))

    def reclaim(self, *, claimed: bool = False) -> Lease | None:
        """LeaseTable.reclaim."""
        return self._locked(lambda: self._table.reclaim(claimed=claimed))

    def reset(self) -> None:
        """LeaseTable.reset."""
        self._locked(self._table.reset)

    def sweep(self) -> None:
        """LeaseTable.sweep."""
        self._locked(self._table.sweep)

    def take_ended(self) -> list[Lease]:
        """LeaseTable.take_ended."""
        return self._locked(self._table.take_ended)

    def counts(self) -> dict[State, int]:
        """LeaseTable.counts."""
        return self._locked(self._table.counts)

    @property
    def counters(self) -> Counters:
        """LeaseTable.counters."""
        return self._locked(lambda: self._table.counters)

    def listing(self) -> bytes:
        """LeaseTable.listing; the lock is not held while the text is put together."""
        return joined(self._locked(self._table.snapshot))

    def events(self, since: int) -> tuple[list[bytes], int]:
        """Lines of JSON after `since`, each with its line end, and the number to ask with next.

        Raises:
            Gone: list anew.
        """
        found, sequence = self._locked(lambda: (self._table.events(since), self._table.sequence))
        return [event_line(event) for event in found], sequence

    def being_read(self) -> list[Lease]:
        """LeaseTable.being_read, without copies."""
        return self._locked(self._table.being_read)

    def wait_for_reads(self) -> None:
        """Wait until no lease is being read; each is over at its deadline."""
        end = time.monotonic() + self._longest_read_s
        with self._changed:
            while self._table.being_read() and not self._closed:
                if (left_s := end - time.monotonic()) <= 0:  # with a clock that stands still
                    return
                due_s = self._table.due_in()
                self._changed.wait(left_s if due_s is None else min(left_s, max(due_s, 0.01)))

    def wait(self, since: int, timeout_s: float) -> bool:
        """Wait for an event after `since`, and let the time do its work meanwhile.

        Returns:
            False when the time is up or the book is closed without one.
        """
        end = time.monotonic() + timeout_s
        with self._changed:
            while True:
                self._sweep()
                left_s = end - time.monotonic()
                if self._table.sequence != since:
                    return True
                if self._closed or left_s <= 0:
                    return False
                due_s = self._table.due_in()
                self._changed.wait(left_s if due_s is None else min(left_s, max(due_s, 0.0)))

    def _sweep(self) -> None:
        before = self._table.sequence
        self._table.sweep()
        if self._table.sequence != before:
            self._changed.notify_all()

    def _locked(self, act: Callable[[], T]) -> T:
        with self._changed:
            before = self._table.sequence
            try:
                return act()
            finally:
                if self._table.sequence != before:  # also by what was due, when `act` raises
                    self._changed.notify_all()
