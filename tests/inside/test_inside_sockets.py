"""Turns with the listeners and readers themselves, over loopback."""

import time
from collections.abc import Iterator

import pytest

from toypair import seams
from toypair.engine import Outcome, Params, Shape, ToyEngine
from toypair.model import answer
from toypair.pair import FIRST, Pair
from toypair.transport import FABRIC

PROMPT = list(range(10, 31))
MORE = [3, 1, 4, 1, 5]


@pytest.fixture
def pair() -> Iterator[Pair]:
    with seams.sockets():
        made = Pair()
    try:
        yield made
        made.end()
    finally:
        made.close()


def leg(engine: ToyEngine, prompt: list[int], params: Params | None, tokens: int = 1) -> Outcome:
    """A leg to its end; the answers come from threads."""
    name = engine.add(prompt, params, tokens=tokens)
    end = time.monotonic() + 30
    while engine.outcomes[name].reason is None and time.monotonic() < end:
        engine.step()
    outcome = engine.outcomes[name]
    assert outcome.tokens == answer(prompt, tokens)
    return outcome


def until_no_lease(engine: ToyEngine) -> None:
    """Wait for what a reader's thread says."""
    end = time.monotonic() + 30
    while engine.book.counts() != {"granted": 0, "claimed": 0, "reading": 0}:
        assert time.monotonic() < end
        time.sleep(0.001)


def test_turns_are_read_both_ways(pair: Pair) -> None:
    handle: Params | None = FIRST
    prompt = PROMPT
    for _ in range(3):
        offer = leg(pair.p, prompt, handle).params
        outcome = leg(pair.d, prompt, offer, 8)
        prompt, handle = prompt + outcome.tokens + MORE, outcome.params
    assert [read.reader == pair.p.worker.nixl_wrapper.name for read in FABRIC.done] == [
        False,
        True,
        False,
        True,
        False,
    ]


def test_a_lease_that_is_not_used_is_given_back_over_the_wire(pair: Pair) -> None:
    held, handle = PROMPT, leg(pair.d, PROMPT, {"x": 1}, 6).params
    assert handle is not None
    leg(pair.p, [49 - token for token in held], handle)
    until_no_lease(pair.d)
    assert pair.d.book.counters.ended["released"] == 1


def test_the_end_of_a_read_is_told_over_the_wire_to_an_idle_engine(pair: Pair) -> None:
    handle = leg(pair.d, PROMPT, {"x": 1}, 6).params
    pair.d.run()
    assert not pair.d.scheduler.has_requests()
    leg(pair.p, [*PROMPT, *answer(PROMPT, 6), *MORE], handle)
    until_no_lease(pair.d)
    assert pair.d.book.counters.ended["read"] == 1


def test_an_owner_that_is_gone_costs_a_recompute(pair: Pair) -> None:
    handle = leg(pair.d, PROMPT, {"x": 1}, 6).params
    pair.d.close()
    pair.d = ToyEngine("decode", Shape())
    leg(pair.p, [*PROMPT, *MORE], handle)
    assert FABRIC.done == []


def test_a_burst_of_requests_is_read_without_exception() -> None:
    with seams.sockets():
        pair = Pair(Shape(blocks=1000, seqs=64), Shape(blocks=1000, seqs=64))
    try:
        prompts = [[number % 50, number // 50, 3, 4, 5, 6, 7] for number in range(200)]
        legs = [pair.p.add(prompt, FIRST) for prompt in prompts]
        pair.p.run(*legs, steps=100_000)
        names = [
            pair.d.add(prompt, pair.p.outcomes[leg].params, tokens=2)
            for prompt, leg in zip(prompts, legs, strict=True)
        ]
        pair.d.run(*names, steps=1_000_000)
        assert len(FABRIC.done) == len(prompts)
        pair.end()
    finally:
        pair.close()
