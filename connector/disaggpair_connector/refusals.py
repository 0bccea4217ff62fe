"""How fast the lease listener refuses. Pure but for its lock.

The listener's threads share the interpreter with the scheduler, so whoever reaches the port could
slow the engine by asking for nothing: 5,000 to 6,000 refused requests a second left a scheduler 22
to 38 % of its steps (docs/benchmarks.md). Refusals beyond a rate that honest clients do not reach
are therefore late, each in its own thread, asleep. What is granted is never late.
"""

import threading
from collections.abc import Callable
from typing import Final

FREE_PER_S: Final = 500.0
"""Refusals at once, and each second, without a delay. After a restart of an engine every handle of
its old life is refused once; a router's turns bring some hundred a second."""

DELAY_S: Final = 0.25
"""Before one beyond that. With 64 connections this leaves 256 a second."""


class Refusals:
    """The refusals of one listener.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._left = FREE_PER_S
        self._at = clock()

    def delay_s(self) -> float:
        """How long to wait before one more refusal is sent."""
        with self._lock:
            now = self._clock()
            self._left = min(FREE_PER_S, self._left + (now - self._at) * FREE_PER_S)
            self._at = now
            if self._left < 1.0:
                return DELAY_S
            self._left -= 1.0
            return 0.0
