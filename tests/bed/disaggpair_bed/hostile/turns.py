"""One turn as it is planned, and what became of it. Values only."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from disaggpair_bed.hostile.client import Leg
from disaggpair_bed.hostile.conversation import Conversation, Handle, Tokens

Change = Callable[[Mapping[str, Any]], Any]
"""From transfer parameters to what is sent in their place."""

Abort = Literal["prefill", "decode"]


@dataclass(frozen=True)
class Turn:
    """A turn to play.

    Attributes:
        operation: what it is counted under.
        conversation: takes in the answer.
        prompt: all tokens up to the answer.
        salt: the `cache_salt` of both legs.
        handle: what P gets as transfer parameters; None for a turn without a handle.
        uses: the handle that `handle` was made of; it is spent then.
        usable: the most tokens that P may read from D.
        change_offer: what D gets in place of P's answer.
        direct: transfer parameters of a turn that is sent to D alone; `handle` is not used then.
        is_direct: whether it is sent to D alone.
        siblings: how many answers D is asked for; more than one are sampled.
        abort: the leg that the client leaves.
        variant: what exactly was done, for the log.
    """

    operation: str
    conversation: Conversation
    prompt: Tokens
    salt: str
    handle: Any = None
    uses: Handle | None = None
    usable: int = 0
    change_offer: Change | None = None
    direct: Any = None
    is_direct: bool = False
    siblings: int = 1
    abort: Abort | None = None
    variant: str = ""

    @property
    def is_hostile(self) -> bool:
        """Whether something else than the next turn of a conversation is asked for."""
        return self.operation not in ("first", "continue")


@dataclass
class Played:
    """What became of a turn.

    Attributes:
        turn: the plan.
        prefill: P's leg, None if it was not sent.
        decode: D's leg, None if it was not sent.
        read: tokens that P read from D.
        distances: largest distance of P's and of D's distributions from a recompute.
        poisoned: whether a later request without a handle found wrong KV.
        died: engines that ended.
        stuck: engines that answer nobody.
        retry: the turn again without a handle, as a router does it after a failure.
    """

    turn: Turn
    prefill: Leg | None = None
    decode: Leg | None = None
    read: int = 0
    distances: tuple[float, float] | None = None
    poisoned: bool = False
    died: tuple[str, ...] = ()
    stuck: tuple[str, ...] = ()
    retry: "Played | None" = None

    @property
    def legs(self) -> list[Leg]:
        """The legs that were sent."""
        return [leg for leg in (self.prefill, self.decode) if leg is not None]

    @property
    def distance(self) -> float | None:
        """The larger one of `distances`."""
        return None if self.distances is None else max(self.distances)

    @property
    def answered(self) -> bool:
        """Whether the turn has its answer."""
        return self.decode is not None and self.decode.answered
