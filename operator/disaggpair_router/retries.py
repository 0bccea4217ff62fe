"""How many legs may be sent a second time. Pure.

When engines fail because there is too much to do, a second attempt for every turn doubles it. So
second attempts have a budget of their own: what is over it ends as if there were no other engine.
"""

from collections.abc import Callable


class RetryBudget:
    """A bucket that fills at an even rate and holds the attempts of one second, or one.

    Args:
        per_s: second attempts for each second; 0 for none at all.
        clock: seconds that only grow.
    """

    def __init__(self, per_s: float, clock: Callable[[], float]) -> None:
        self._per_s = per_s
        self._clock = clock
        self._most = max(1.0, per_s) if per_s else 0.0
        self._left = self._most
        self._filled = clock()

    def take(self) -> bool:
        """Whether one more attempt may be made now, which is then used up."""
        now = self._clock()
        self._left = min(self._most, self._left + (now - self._filled) * self._per_s)
        self._filled = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
