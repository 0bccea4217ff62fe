"""Conversations of agents: a cold first turn, then turns of new tokens after some thinking."""

from dataclasses import dataclass
from random import Random
from typing import Final

NEW_TOKENS: Final = (64, 128, 256, 512, 1_024, 2_048, 4_096)
WEIGHTS: Final = (3, 4, 5, 5, 4, 2, 1)
"""Many short tool results, some files."""


@dataclass(frozen=True)
class PlannedTurn:
    """What a turn brings, whoever chooses its way."""

    number: int
    conversation: int
    new: int
    characters: int
    """Of the new messages."""
    answer: int
    think_s: float
    """From the end of the turn before."""
    luck: int


@dataclass(frozen=True)
class Conversation:
    """One agent's run."""

    start: float
    turns: tuple[PlannedTurn, ...]


def conversations(
    seed: int, *, turns: int, per_s: float, burst: int = 1, ratio: float = 3.6
) -> list[Conversation]:
    """So many turns at least; `per_s` new turns a second on average, conversations in bursts.

    `ratio` is the mean of characters per token; single messages lie up to a third off.
    """
    draw = Random(seed)
    made: list[Conversation] = []
    number, at, since = 0, 0.0, 0
    mean_length = 12.0
    while number < turns:
        if since % burst == 0:
            at += draw.expovariate(per_s / mean_length / burst)
        since += 1
        length = draw.choice((3, 6, 10, 16, 25))
        planned = []
        for index in range(length):
            grain = draw.uniform(0.75, 1.3)
            new = draw.choice((1_000, 4_000, 8_000, 12_000)) if index == 0 else 0
            new = new or round(draw.choices(NEW_TOKENS, WEIGHTS)[0] * grain)
            planned.append(
                PlannedTurn(
                    number=number,
                    conversation=len(made),
                    new=min(new, 4_096) if index else new,
                    characters=round(new * ratio * draw.lognormvariate(0, 0.12)),
                    answer=draw.choice((32, 64, 128, 256)),
                    think_s=draw.expovariate(1 / 2.0),
                    luck=draw.getrandbits(48),
                )
            )
            number += 1
        made.append(Conversation(at, tuple(planned)))
    return made
