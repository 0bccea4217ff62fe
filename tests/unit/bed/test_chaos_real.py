"""What clients of real engines say, and how their answers are judged; without engines."""

import math
from collections.abc import Sequence
from random import Random

from disaggpair_bed.chaos.real.judge import Judge
from disaggpair_bed.chaos.real.talk import KINDS, RealTalk
from disaggpair_bed.chaos.record import Record
from disaggpair_bed.hostile.client import Client, Leg
from disaggpair_bed.hostile.conversation import Tokens
from disaggpair_bed.hostile.distribution import Top


def right(token: int) -> Top:
    return {token: math.log(0.5), token + 1: math.log(0.25)}


class Oracle(Client):
    """An engine whose distribution depends on the token that comes."""

    def __init__(self) -> None:
        self.asked: list[tuple[Tokens, int]] = []
        self.refuses = 0

    async def distributions(
        self, prompt: Sequence[int], first: int, salt: str
    ) -> tuple[Top, ...] | None:
        self.asked.append((tuple(prompt), first))
        if self.refuses:
            self.refuses -= 1
            return None
        return tuple(map(right, prompt[first:]))


def leg(*tokens: int) -> Leg:
    return Leg("answered", 1.0, tokens=tokens, tops=tuple(map(right, tokens)))


async def judged(judge: Judge, oracle: Oracle) -> Record:
    record = Record()
    record.counts["next", "right"] = 3
    await judge.judge(oracle, record, lambda _: None)
    return record


async def test_answers_of_one_history_are_judged_at_once() -> None:
    judge, oracle = Judge(), Oracle()
    chain = judge.took(None, "next", (1, 2), leg(3, 4))
    assert judge.took(chain, "next", (1, 2, 3, 4, 5), leg(6)) is chain
    edited = judge.took(chain, "edit", (1, 9, 3, 4, 5), leg(6))
    assert edited is not chain
    assert (await judged(judge, oracle)).faults == []
    assert oracle.asked == [((1, 2, 3, 4, 5, 6), 2), ((1, 9, 3, 4, 5, 6), 5)]
    assert (judge.answers, judge.largest) == (3, 0)


async def test_an_answer_with_other_distributions_is_wrong() -> None:
    judge, oracle = Judge(), Oracle()
    chain = judge.took(None, "next", (1, 2), leg(3, 4))
    wrong = Leg("answered", 1.0, tokens=(6, 7), tops=(right(6), right(8)))
    judge.took(chain, "next", (1, 2, 3, 4, 5), wrong)
    record = await judged(judge, oracle)
    assert len(record.faults) == 1
    assert (record.counts["next", "right"], record.counts["next", "wrong"]) == (2, 1)


async def test_an_engine_that_does_not_recompute_is_a_fault() -> None:
    judge, oracle = Judge(), Oracle()
    judge.took(None, "next", (1, 2), leg(3, 4))
    oracle.refuses = 1
    assert (await judged(judge, oracle)).faults == []
    oracle.refuses = 99
    assert len((await judged(judge, oracle)).faults) == 1


def test_a_seed_decides_what_is_said() -> None:
    def of(seed: int) -> list[object]:
        talk = RealTalk.begun(Random(seed), 1)
        said: list[object] = [talk.fields]
        for _ in range(20):
            asks = talk.asks()
            talk.history = asks[0].prompt
            said += asks
        return said

    assert of(5) == of(5)
    assert of(5) != of(6)


def test_all_kinds_of_turns_come() -> None:
    kinds, counts = set(), set()
    for seed in range(60):
        talk = RealTalk.begun(Random(seed), 1)
        while not talk.is_over:
            asks = talk.asks()
            kinds.add(asks[0].kind)
            counts.add(len(asks))
            talk.history = asks[0].prompt
            assert all(len(ask.prompt) + ask.tokens <= 2_048 for ask in asks)
    assert kinds == {"first", *KINDS}
    assert counts == {1, 2}
