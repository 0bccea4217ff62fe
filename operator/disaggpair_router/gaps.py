"""The gaps between the tokens of one D's streams while it computes a prompt. Pure."""


class Gaps:
    """What the streams of one router at one D show of its steps."""

    def __init__(self) -> None:
        self.streams = 0
        """Streams that have begun and not ended."""
        self._prefills = 0
        self._is_mixed = False
        self._longest_s = 0.0

    def begin_prefill(self) -> None:
        """D begins to compute the new tokens of a turn."""
        self._is_mixed = self._prefills > 0
        self._prefills += 1
        self._longest_s = 0.0

    def end_prefill(self) -> float | None:
        """It is done: the longest gap meanwhile, in seconds.

        None when there was none, or when more than one such turn could have caused it.
        """
        if self._prefills == 0:
            return None
        self._prefills -= 1
        found = None if self._is_mixed or not self._longest_s else self._longest_s
        self._is_mixed = self._prefills > 0
        self._longest_s = 0.0
        return found

    def see(self, gap_s: float) -> None:
        """A gap between two pieces of a stream."""
        if self._prefills and gap_s > self._longest_s:
            self._longest_s = gap_s
