"""How long an engine has had no blocks for anybody. Pure but for its clock.

Both roles hold leases of each other's for requests that wait for blocks of their own. With both
caches full that is a circle: P's requests wait for blocks that D has not read, D's for blocks that
P has not read. So whoever stands still gives up what is held for requests that wait.
"""

from collections.abc import Callable
from typing import Final

PATIENCE_S: Final = 1.0
"""After so long without blocks for anybody, what is held for requests that wait is given up. What
is computed again for it costs less than two engines that do nothing."""


class Standstill:
    """What became of an engine's last allocations.

    Args:
        clock: seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: float | None = None
        self._last = 0.0

    def got(self) -> None:
        """A request has its blocks."""
        self._since = None

    def missed(self) -> None:
        """A request has not."""
        now = self._clock()
        # Else the requests of then have gone, and nobody has asked since.
        if self._since is None or now - self._last > PATIENCE_S:
            self._since = now
        self._last = now

    def restart(self) -> None:
        """Something was given up: wait as long again for what comes of it."""
        self._since = None

    @property
    def has_lasted(self) -> bool:
        """Whether it is time to give something up."""
        return self._since is not None and self._clock() - self._since >= PATIENCE_S
