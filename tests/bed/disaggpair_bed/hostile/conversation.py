"""Conversations as token ids, the handles that their turns left, and edits of histories. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

Tokens = tuple[int, ...]

VOCABULARY: Final = range(4, 260)
"""The model's tokens without its special ones."""

LONGEST: Final = 1550
"""A conversation that grew longer ends, so that no prompt has more than 2,048 tokens: up to there
two computations are equal, see `distribution`."""


@dataclass
class Handle:
    """What D gave out at the end of a turn."""

    params: Mapping[str, Any]
    held: Tokens
    """The tokens whose KV it stands for: all of the turn but the last."""
    salt: str
    born_s: float
    """The runner's clock when D answered."""
    spent: bool = False
    """Whether a P leg was sent with it or with something made of it."""
    used: bool = False
    """Whether P got it as it is and answered, so that D must give it to nobody again."""


@dataclass
class Conversation:
    """Its history, the prompt of its last turn, and the handles it left."""

    salt: str
    history: Tokens = ()
    prompt: Tokens = ()
    handles: list[Handle] = field(default_factory=list)
    """Oldest first; the last one belongs to `history`, if it did not fail."""

    @property
    def handle(self) -> Handle | None:
        """The last turn's handle while nobody used it."""
        return self.handles[-1] if self.handles and not self.handles[-1].spent else None

    def went_on(self, prompt: Tokens, answer: Tokens, handle: Handle | None) -> None:
        """Take in a turn that was answered."""
        self.prompt = prompt
        self.history = prompt + answer
        if handle is not None:
            self.handles.append(handle)
        elif self.handles:
            self.handles[-1].spent = True


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """How many leading tokens are the same."""
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count


def drawn(rng: Random, count: int) -> Tokens:
    """Random text."""
    return tuple(rng.choices(VOCABULARY, k=count))


def said(rng: Random) -> Tokens:
    """What a user says next: often a line, at times a page."""
    return drawn(rng, rng.choice([8, 33, 64, 90, 150, 300]))


def replaced(rng: Random, tokens: Tokens) -> Tokens:
    """Some tokens in a row are others; the length stays."""
    count = min(len(tokens), rng.choice([1, 2, 16, 64, 200]))
    begin = rng.randrange(len(tokens) - count + 1)
    new = tuple(_another(rng, token) for token in tokens[begin : begin + count])
    return tokens[:begin] + new + tokens[begin + count :]


def inserted(rng: Random, tokens: Tokens) -> Tokens:
    """Some tokens more, anywhere."""
    begin = rng.randrange(len(tokens))
    # The first new token differs from what stood there, so that the common prefix ends there.
    first = _another(rng, tokens[begin])
    return (*tokens[:begin], first, *drawn(rng, rng.choice([0, 3, 31, 64])), *tokens[begin:])


def deleted(rng: Random, tokens: Tokens) -> Tokens:
    """Some tokens less, anywhere."""
    count = min(len(tokens) - 1, rng.choice([1, 5, 32, 64, 200]))
    begin = rng.randrange(len(tokens) - count)
    return tokens[:begin] + tokens[begin + count :]


def _another(rng: Random, token: int) -> int:
    return rng.choice([other for other in VOCABULARY if other != token])
