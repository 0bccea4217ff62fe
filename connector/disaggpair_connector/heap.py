"""Leases in the order of a number that changes with them. Pure."""

from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush
from typing import Final

from disaggpair_connector.lease import Lease

_SPARE: Final = 64


class LeaseHeap:
    """The lease with the lowest number first.

    A change of a number is a push; what was pushed before is dropped when it comes to the front,
    or when it makes up more than half of the heap. So a push and a look at the front take
    O(log n), amortised.

    Args:
        leases: the leases that there are, by id.
        number_of: the number of one, None for one that does not belong here.
    """

    def __init__(
        self, leases: Mapping[str, Lease], number_of: Callable[[Lease], float | None]
    ) -> None:
        self._leases = leases
        self._number_of = number_of
        self._entries: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def push(self, lease: Lease) -> None:
        """Put a lease where its number says."""
        if (number := self._number_of(lease)) is None:
            return
        heappush(self._entries, (number, lease.id))
        if len(self._entries) > 2 * len(self._leases) + _SPARE:
            numbered = [(self._number_of(lease), lease) for lease in self._leases.values()]
            self._entries = [(number, lease.id) for number, lease in numbered if number is not None]
            heapify(self._entries)

    def first(self) -> Lease | None:
        """The lease with the lowest number."""
        while self._entries:
            number, name = self._entries[0]
            lease = self._leases.get(name)
            if lease and self._number_of(lease) == number:
                return lease
            heappop(self._entries)
        return None
