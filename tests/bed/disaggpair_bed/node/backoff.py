"""The wait between two starts of a container that keeps ending."""

CAP = 30
"""The longest wait is this many times the first: 10 s grow to 5 minutes, as on a real node."""


class Backoff:
    """None before the first restart, then `base_s`, doubling up to CAP times itself.

    A run of more than twice the longest wait starts the series anew.
    """

    def __init__(self, base_s: float) -> None:
        self._base_s = base_s
        self._next_s = 0.0

    def wait_after(self, run_s: float) -> float:
        """The wait after a run of that many seconds."""
        if run_s > 2 * CAP * self._base_s:
            self._next_s = 0.0
        wait_s = self._next_s
        self._next_s = min(CAP * self._base_s, 2 * wait_s) if wait_s else self._base_s
        return wait_s
