"""Blocks that outlive their request: pinned for a peer, with a deadline.

Follows the split in vLLM: the scheduler half keeps the blocks of a finished request, the worker
half knows which requests it may hear about and until when. A request that the worker half never
heard of has no deadline, so its blocks are never freed (`leaked`).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field


@dataclass
class Lease:
    """Blocks that one finished request left behind."""

    request_id: str
    role: str
    blocks: list[int]
    deadline: float | None
    """None: nothing will ever free the blocks."""


@dataclass
class LeaseTable:
    """The leases of one engine, by the request id that peers know."""

    _tracked: set[str] = field(default_factory=set)
    _leases: dict[str, Lease] = field(default_factory=dict)

    def track(self, request_id: str) -> None:
        """Accept a deadline and notifications for a request from now on."""
        self._tracked.add(request_id)

    def untrack(self, request_id: str) -> None:
        """Expect nothing more about a request."""
        self._tracked.discard(request_id)

    def pin(self, request_id: str, role: str, blocks: list[int], deadline: float) -> Lease:
        """Keep the blocks of a request that ended."""
        known = request_id in self._tracked
        lease = Lease(request_id, role, blocks, deadline if known else None)
        self._leases[request_id] = lease
        return lease

    def notify(self, request_id: str) -> tuple[bool, Lease | None]:
        """A peer is done with a request: whether the id was known, and the lease that ends."""
        if request_id not in self._tracked:
            return False, None
        self._tracked.discard(request_id)
        return True, self._leases.pop(request_id, None)

    def extend(self, request_ids: Iterable[str], deadline: float) -> None:
        """Heartbeat: move deadlines to at least this time."""
        for request_id in request_ids:
            lease = self._leases.get(request_id)
            if lease is not None and lease.deadline is not None:
                lease.deadline = max(lease.deadline, deadline)

    def expire(self, now: float) -> list[Lease]:
        """Drop and return the leases whose deadline has come."""
        due = [
            lease
            for lease in self._leases.values()
            if lease.deadline is not None and now >= lease.deadline
        ]
        for lease in due:
            del self._leases[lease.request_id]
            self._tracked.discard(lease.request_id)
        return due

    def get(self, request_id: str) -> Lease | None:
        """The lease of a request, if there is one."""
        return self._leases.get(request_id)

    def next_deadline(self) -> float | None:
        """When `expire` has something to do."""
        deadlines = [
            lease.deadline for lease in self._leases.values() if lease.deadline is not None
        ]
        return min(deadlines, default=None)

    def __iter__(self) -> Iterator[Lease]:
        return iter(self._leases.values())

    def __len__(self) -> int:
        return len(self._leases)
