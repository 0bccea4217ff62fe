"""The history of a prompt of token ids. Pure; see `history` for those of messages and text."""

import hashlib
from array import array
from collections.abc import Iterator, Sequence

from disaggpair_router.answer import Answer
from disaggpair_router.history import Difference, Mark


class TokenHistory:
    """A prompt of token ids, for engines that compare tokens themselves.

    An answer's ids are not known here, so a turn's mark is the end of its prompt.
    """

    def __init__(self, prompt: Sequence[int]) -> None:
        self._tokens = array("q", prompt)

    def difference(self, mark: Mark) -> Difference | None:
        """See `History`."""
        if len(self._tokens) <= mark.length:
            return "shorter"
        return None if self._digest(mark.length) == mark.digest else "edited"

    def mark_after(self, answer: Answer) -> Mark:
        """See `History`; without the answer."""
        return self.prompt()

    def digests(self) -> Iterator[bytes]:
        """See `History`; none, as of a text."""
        return iter(())

    def prompt(self) -> Mark:
        """See `History`."""
        return Mark(len(self._tokens), self._digest(len(self._tokens)))

    def beginning(self, length: int) -> bytes | None:
        """See `History`."""
        return self._digest(length) if length < len(self._tokens) else None

    def size(self, start: int) -> tuple[int, int]:
        """See `History`; four characters for each token."""
        return 4 * max(0, len(self._tokens) - start), 0

    def size_after(self, length: int) -> tuple[int, int]:
        """See `History`: where the answer ends is not known, so it counts as new."""
        return self.size(length)

    def _digest(self, length: int) -> bytes:
        return hashlib.sha256(memoryview(self._tokens)[:length]).digest()
