"""Pairs of engines between which no handles are sent for a time.

A P whose own flag is off answers no turn that has a handle, and all others.
"""

import logging
from collections.abc import Callable

logger = logging.getLogger(__name__)


class Pauses:
    """The pauses of one router process.

    Args:
        pause_s: how long one lasts.
        clock: seconds that only grow.
    """

    def __init__(self, pause_s: float, clock: Callable[[], float]) -> None:
        self._pause_s = pause_s
        self._clock = clock
        self._until: dict[tuple[str, str], float] = {}

    def begin(self, prefill: str, decode: str) -> None:
        """P did not answer a turn with a handle of D."""
        self._until[prefill, decode] = self._clock() + self._pause_s
        logger.warning(
            "a prefill engine did not answer a turn with a handle; no handles for %g s. "
            "Is bidirectional_kv_xfer on at both roles?",
            self._pause_s,
        )

    def holds(self, prefill: str, decode: str) -> bool:
        """Whether the two are paused now."""
        return self._clock() < self._until.get((prefill, decode), 0.0)

    def active(self) -> list[tuple[str, str, float]]:
        """P, D and seconds left of each pause."""
        now = self._clock()
        return [(*pair, until - now) for pair, until in self._until.items() if now < until]

    def expire(self) -> None:
        """Forget what is over."""
        now = self._clock()
        self._until = {pair: until for pair, until in self._until.items() if now < until}
