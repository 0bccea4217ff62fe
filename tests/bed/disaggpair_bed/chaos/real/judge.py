"""Whether what came back is right: each token's distribution is that of a recompute."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from disaggpair_bed.chaos.record import Record
from disaggpair_bed.hostile.client import Client, Leg
from disaggpair_bed.hostile.conversation import Tokens
from disaggpair_bed.hostile.distribution import TOLERANCE, largest_distance

_ATTEMPTS = 3


@dataclass
class Answer:
    """An answer, or what came of it, behind so many tokens of its chain."""

    kind: str
    leg: Leg
    at: int


@dataclass
class Chain:
    """One history, and the answers in it: all of them are judged at once."""

    tokens: Tokens
    answers: list[Answer] = field(default_factory=list)


class Judge:
    """Takes answers in, and judges them when the engines are left alone."""

    def __init__(self) -> None:
        self._chains: list[Chain] = []
        self.answers = 0
        self.largest = 0.0

    def took(self, chain: Chain | None, kind: str, prompt: Tokens, leg: Leg) -> Chain:
        """Take an answer in, behind others of its history if it goes on from them."""
        whole = prompt + leg.tokens
        if chain is None or prompt[: len(chain.tokens)] != chain.tokens:
            chain = Chain(())
            self._chains.append(chain)
        chain.tokens = whole
        chain.answers.append(Answer(kind, leg, len(prompt)))
        self.answers += 1
        return chain

    async def judge(self, engine: Client, record: Record, say: Callable[[str], None]) -> None:
        """Compare everything with recomputes on an engine; faults go into the record."""
        salt = f"judge-{Random().random()}"
        for number, chain in enumerate(self._chains):
            first = chain.answers[0].at
            truth = None
            for _ in range(_ATTEMPTS):
                if (truth := await engine.distributions(chain.tokens, first, salt)) is not None:
                    break
            if truth is None:
                record.faults.append("an engine that does not recompute at the end")
                return
            for answer in chain.answers:
                begin = answer.at - first
                right = truth[begin : begin + len(answer.leg.tops)]
                distance = largest_distance(answer.leg.tops, right)
                self.largest = max(self.largest, distance)
                if distance > TOLERANCE:
                    record.counts[answer.kind, "right"] -= 1
                    record.counts[answer.kind, "wrong"] += 1
                    record.faults.append(
                        f"wrong: a turn of kind {answer.kind}, {answer.at} tokens: {distance:.3f}"
                    )
            if number % 100 == 99:
                say(f"judged {number + 1} of {len(self._chains)} histories")
