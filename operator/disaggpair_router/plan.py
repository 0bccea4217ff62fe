"""How a turn is run, as its legs see it, and the plan of turns that have no choice."""

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from disaggpair_router.held import TurnKV
from disaggpair_router.pick import Choice
from disaggpair_router.request import TurnRequest
from disaggpair_router.turnlog import TurnRecord
from disaggpair_router.way.choice import Decision


class PrefillNote:
    """What P says of a leg that is over."""

    cached_tokens = 0
    """Tokens of the prompt that it did not compute."""


class Plan(Protocol):
    """How one turn runs."""

    may_read: bool
    """Whether the P leg may take what D holds."""
    has_choice: bool
    """Whether `decide` may find another way than the P leg's."""

    def decide(self, choice: Choice, kv: TurnKV, record: TurnRecord) -> Decision | None:
        """The way with these engines; None when there is nothing to choose."""
        ...

    def prefilling(self, prefill: str, *, reads: bool) -> AbstractContextManager[PrefillNote]:
        """A P leg is in flight while the block runs."""
        ...

    def decoding(self, decode: str, *, direct: bool) -> AbstractContextManager[None]:
        """A D leg is in flight while the block runs."""
        ...

    def token(self) -> None:
        """A piece of D's stream has come."""
        ...

    def ended(self, record: TurnRecord) -> None:
        """The turn has an answer."""
        ...


class FixedPlan:
    """The plan of every turn where no way is chosen: P reads what it may; nothing is learned."""

    may_read = True
    has_choice = False

    def decide(self, choice: Choice, kv: TurnKV, record: TurnRecord) -> Decision | None:
        """See `Plan`."""
        return None

    def prefilling(self, prefill: str, *, reads: bool) -> AbstractContextManager[PrefillNote]:
        """See `Plan`."""
        return nullcontext(PrefillNote())

    def decoding(self, decode: str, *, direct: bool) -> AbstractContextManager[None]:
        """See `Plan`."""
        return nullcontext()

    def token(self) -> None:
        """See `Plan`."""

    def ended(self, record: TurnRecord) -> None:
        """See `Plan`."""


class Planning(Protocol):
    """Makes the plans of turns."""

    def plan(self, request: TurnRequest, kv: TurnKV) -> Plan:
        """A turn begins."""
        ...


class FixedPlans:
    """Makes the same plan for every turn."""

    def plan(self, request: TurnRequest, kv: TurnKV) -> Plan:
        """See `Planning`."""
        return _FIXED


_FIXED = FixedPlan()
