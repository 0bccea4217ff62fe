"""Which key is worked on when, and how long a failed one waits. Pure: times are arguments.

A key is never worked on twice at once. Additions of a key that already waits fold into one, at the
earlier of the two times; a key added while it is worked on waits until that is finished.

    delay(n) = min(limit, first * factor^(n - 1)) * (1 - spread * r),  r uniform in [0, 1)

for the n-th failure in a row. The spread keeps pairs that failed together from returning together.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Backoff:
    """Delays between attempts that fail, in seconds."""

    first_s: float = 1.0
    """After the first failure, before the spread."""
    factor: float = 2.0
    """Growth from one failure to the next."""
    limit_s: float = 120.0
    """Longest delay."""
    spread: float = 0.25
    """Largest part by which a delay is shortened."""

    def delay_s(self, failures: int, random: float) -> float:
        """Delay after that many failures in a row (at least 1), for a random number in [0, 1)."""
        # Beyond 2^64 any delay is at the limit; the bound keeps the power a finite float.
        longest = self.first_s * self.factor ** min(failures - 1, 64)
        return min(self.limit_s, longest) * (1 - self.spread * random)


class Schedule(Generic[K]):
    """The keys that wait and the keys that are worked on."""

    def __init__(self) -> None:
        self._due: dict[K, float] = {}
        self._running: set[K] = set()

    def __len__(self) -> int:
        return len(self._due)

    def add(self, key: K, due: float) -> None:
        """Work on the key at `due`, or earlier when it waits for an earlier time already."""
        self._due[key] = min(due, self._due.get(key, due))

    def take(self, now: float) -> K | None:
        """The key that is due longest, now marked as worked on; None when none is due."""
        key = self._first()
        if key is None or self._due[key] > now:
            return None
        del self._due[key]
        self._running.add(key)
        return key

    def next_due(self) -> float | None:
        """When the next key may be taken, as things are; None when none waits."""
        key = self._first()
        return None if key is None else self._due[key]

    def finish(self, key: K) -> None:
        """The key is no longer worked on."""
        self._running.remove(key)

    def _first(self) -> K | None:
        # A scan, not a heap: keys are pairs, and even a thousand of them cost less than one
        # request to the API server.
        waiting = self._due.keys() - self._running if self._running else self._due.keys()
        return min(waiting, key=self._due.__getitem__, default=None)
