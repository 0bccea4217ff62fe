"""What clients of real engines say: conversations of exact tokens. Pure."""

from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from disaggpair_bed.hostile.conversation import LONGEST, Tokens, drawn, replaced, said

KINDS: Final = {"next": 12, "stream": 8, "fork": 2, "again": 2, "edit": 2, "leave": 3, "slow": 1}
"""How often each happens to a turn."""

_TOKENS: Final = (8, 16, 16, 60)
_BEGIN: Final = (200, 600, 900)


@dataclass(frozen=True)
class Ask:
    """One request."""

    kind: str
    prompt: Tokens
    tokens: int
    """Of the answer: exactly so many."""
    is_streamed: bool
    leaves_after_s: float | None = None
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass
class RealTalk:
    """One conversation."""

    rng: Random
    number: int
    history: Tokens = ()
    fields: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def begun(cls, rng: Random, number: int) -> "RealTalk":
        """A new conversation, with an id or without."""
        talk = cls(rng, number)
        if rng.random() < 0.5:
            talk.fields["conversation_id"] = f"c-{number}"
        return talk

    @property
    def is_over(self) -> bool:
        """Whether it has become too long, or ends by chance."""
        return len(self.history) > LONGEST or (bool(self.history) and self.rng.random() < 0.05)

    def asks(self) -> list[Ask]:
        """What is sent next; several requests at once for a fork."""
        kind = self.rng.choices(list(KINDS), list(KINDS.values()))[0]
        if not self.history:
            return [self._ask("first", drawn(self.rng, self.rng.choice(_BEGIN)))]
        if kind == "edit":
            self.history = replaced(self.rng, self.history)
        prompt = self.history + said(self.rng)
        if kind == "again":
            return [self._ask(kind, prompt), self._ask(kind, prompt)]
        if kind == "fork":
            return [self._ask(kind, prompt), self._ask(kind, self.history + said(self.rng))]
        return [self._ask(kind, prompt)]

    def _ask(self, kind: str, prompt: Tokens) -> Ask:
        rng = self.rng
        streams = kind in ("stream", "leave") or rng.random() < 0.3
        leaves = rng.uniform(0.02, 0.6) if kind == "leave" else None
        # A slow answer is there long enough for something to happen to it.
        tokens = 190 if kind == "slow" else rng.choice(_TOKENS)
        return Ask(kind, prompt, tokens, streams, leaves, dict(self.fields))
