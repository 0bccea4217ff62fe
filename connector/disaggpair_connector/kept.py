"""Until when P keeps the blocks that D reads, as far as D can know. Pure.

P keeps them for a time from its answer, and for another from each of D's heartbeats that comes
before that is over. A D that stood still for longer has lost them, whatever it sends afterwards.
"""

from dataclasses import dataclass
from typing import Final

_MARGIN_S: Final = 5.0


def heartbeat_margin_s(granted_s: float) -> float:
    """A read of P's blocks is not begun with less than this left of their time.

    Args:
        granted_s: that time when P answered, a third of its `kv_lease_duration`.
    """
    return min(_MARGIN_S, granted_s / 2)


@dataclass(slots=True)
class _Term:
    until: float
    is_renewable: bool
    hung: float | None = None
    """When the read counts as hung; None before it has begun."""


class Kept:
    """The reads of a D. Times are seconds of one clock.

    Args:
        gained_s: for how long a heartbeat keeps.
        hung_s: how long a read may take.
    """

    def __init__(self, gained_s: float, hung_s: float) -> None:
        self._gained_s = gained_s
        self._hung_s = hung_s
        self._terms: dict[str, _Term] = {}

    def answered(self, request_id: str, until: float, *, is_renewable: bool = True) -> None:
        """P keeps the blocks of a request's read until then, and longer if heartbeats name it."""
        self._terms[request_id] = _Term(until, is_renewable)

    def until(self, request_id: str) -> float:
        """Until when P keeps the blocks of a read that it has answered."""
        return self._terms[request_id].until

    def begin(self, request_id: str, now: float) -> float:
        """A read begins; when it has to have ended if no heartbeat is sent any more."""
        term = self._terms[request_id]
        term.hung = now + self._hung_s
        return min(term.until, term.hung)

    def beat(self, now: float) -> dict[str, float]:
        """A heartbeat was sent; when each read that is under way has to have ended."""
        for term in self._terms.values():
            if term.is_renewable and now <= term.until:
                term.until = max(term.until, now + self._gained_s)
        return {
            request_id: min(term.until, term.hung)
            for request_id, term in self._terms.items()
            if term.hung is not None
        }

    def forget(self, request_id: str) -> None:
        """A read has ended, or will not begin."""
        self._terms.pop(request_id, None)
