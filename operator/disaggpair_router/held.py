"""What a turn does with the KV that decode engines hold of earlier turns: the legs' side of it.

Two things implement this: `handles` (any NIXL connector; handles are in this process) and `leases`
(our connector; each D has a table that all routers share).
"""

from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from disaggpair_router.answer import Answer
from disaggpair_router.kv import Handle, Json
from disaggpair_router.pick import Endpoint
from disaggpair_router.request import TurnRequest
from disaggpair_router.session import MissReason


@dataclass(frozen=True, slots=True)
class HeldHistory:
    """What one D holds of a turn's history."""

    tokens: int
    length: int
    """Messages of the prompt that it begins with, characters of a completion's; an answer comes
    after them."""


@dataclass(frozen=True, slots=True)
class HeldRow:
    """One conversation that D holds, as an operator may see it."""

    conversation: str
    """Keyed digest, as in a turn's line; empty when the lease is none of a router's."""
    engine: str
    rank: int
    state: str
    tokens: int
    age_s: float


class Claim(Protocol):
    """The right to read once what one D holds."""

    @property
    def handle(self) -> Handle:
        """The parameters for the P leg."""
        ...

    def restore(self) -> None:
        """Put it back: the P leg never reached its engine."""
        ...

    def give_up(self) -> None:
        """Let D free the blocks: P refused the leg before it looked at the handle."""
        ...

    def pause(self, prefill: Endpoint) -> None:
        """Send no handles between the two engines for a time: P did not answer with this one."""
        ...


class TurnKV(Protocol):
    """One turn's use of what is held; made when the turn begins."""

    @property
    def holder(self) -> str:
        """Name of the decode engine that has the conversation; empty when there is none."""
        ...

    @property
    def rank(self) -> int | None:
        """Data-parallel rank of the holder that has it; None when engines have one rank."""
        ...

    @property
    def history(self) -> HeldHistory | None:
        """What the holder has, if this turn continues it and D can compute the rest itself."""
        ...

    @property
    def wants_whole(self) -> bool:
        """Whether D has to be asked without streaming, because only then it gives its handle."""
        ...

    @property
    def wants_answer(self) -> bool:
        """Whether `keep` has a use for the answer's text."""
        ...

    async def claim(self, prefill: Endpoint) -> Claim | MissReason:
        """Take what is held for a P leg at this engine, which is sent right after."""
        ...

    async def claim_direct(self) -> Json | MissReason:
        """Take what is held for a turn that its holder computes alone; parameters for it."""
        ...

    def decode_params(self, params: Json | None, decode: Endpoint) -> Json | None:
        """The parameters of the D leg, made of P's; None of P's when no P leg was sent."""
        ...

    def keep(
        self,
        decode: Endpoint,
        params: object,
        answer: Answer | None,
        usage: Mapping[str, object] | None,
        *,
        is_clean: bool,
    ) -> None:
        """Remember the turn that D finished, before the client learns of the end.

        Its next turn may come right after. `params` are D's, None when there are none; of a turn
        without a clean end nothing is remembered.
        """
        ...

    def discard(self, decode: Endpoint, params: object) -> None:
        """Give up what D holds of a turn whose answer nobody received."""
        ...


class HeldKV(Protocol):
    """What is held, for all turns."""

    def turn(self, request: TurnRequest) -> TurnKV:
        """A turn begins."""
        ...

    def expire(self) -> None:
        """Drop what is over; called now and then."""
        ...

    @property
    def count(self) -> int:
        """How many conversations are held."""
        ...

    def rows(self) -> Iterator[HeldRow]:
        """What is held now, for the debug page."""
        ...

    def listeners(self) -> Mapping[tuple[str, int], bool]:
        """Lease listeners by engine and rank: whether they are followed."""
        ...

    def pauses(self) -> Sequence[tuple[str, str, float]]:
        """P, D and seconds left of each pause."""
        ...

    async def start(self) -> None:
        """Called once in the running loop, before the first turn."""
        ...

    def tasks(self) -> Sequence[Coroutine[Any, Any, None]]:
        """What has to run beside the turns until the router ends."""
        ...

    async def stop(self) -> None:
        """The router ends and its tasks have: give up what nobody else knows of."""
        ...
