"""A short run of `disaggpair-bed chaos`: every answer right, nothing held at the end."""

import asyncio
from random import Random

import pytest

from disaggpair_bed.chaos.bench import lease_bench
from disaggpair_bed.chaos.client import Came
from disaggpair_bed.chaos.record import Record
from disaggpair_bed.chaos.run import Plan, play
from disaggpair_bed.chaos.talk import Shot, Talk
from disaggpair_bed.chaos.truth import Said, Truth

_SEEDS = (1, 2)


@pytest.mark.parametrize("seed", _SEEDS)
async def test_clients_get_the_truth_or_an_error_while_engines_and_routers_fail(
    seed: int, engines_end_well: list[str]
) -> None:
    # The run looks at its engines itself.
    engines_end_well.append("")
    plan = Plan(turns=150, seed=seed, routers=2, clients=4, calm_s=0.1, ttl_s=2.0)
    record = await play(plan)
    assert record.faults == []
    assert record.of("right") > 75
    assert record.events


def test_what_clients_say_is_decided_by_the_seed() -> None:
    def shots() -> list[Shot]:
        talk = Talk.begun(Random(3), 7)
        found = []
        while not talk.is_over:
            sent = talk.shots()
            found += sent
            talk.went(sent[0], Said("An answer."))
        return found

    assert shots() == shots()
    assert len(shots()) > 3


async def test_the_truth_is_what_an_engine_says_that_reads_nothing() -> None:
    async with (
        lease_bench(flags=("--reasoning-parser", "toy")) as bench,
        bench.router() as front,
    ):
        truth = Truth(bench.decode.options)
        bodies = [
            {"messages": [{"role": "user", "content": text}], "tools": tools, **more}
            for text in ("hello", "#call a", "#think 9")
            for tools in ([], [{"type": "function", "function": {"name": "a"}}])
            for more in ({}, {"stop": ["a"]}, {"n": 2}, {"max_tokens": 3})
        ]
        replies = await asyncio.gather(
            *(front.post("/v1/chat/completions", {"model": "toy", **body}) for body in bodies)
        )
        for body, reply in zip(bodies, replies, strict=True):
            said = truth.answers("/v1/chat/completions", {"model": "toy", **body})
            assert said is not None
            choices = reply.json["choices"]
            assert [one.text for one in said] == [
                one["message"]["content"] or "" for one in choices
            ]
            assert [one.finish for one in said] == [one["finish_reason"] for one in choices]


@pytest.mark.parametrize(
    ("came", "found"),
    [
        (Came("answered", 1, (Said("ab", finish="stop"),), 200), "right"),
        (Came("answered", 1, (Said("ac", finish="stop"),), 200), "wrong"),
        (Came("answered", 1, (Said("a", finish="abort"),), 200), "broken"),
        (Came("broken", 1, (Said("a"),), 200, "engine_failed"), "broken"),
        (Came("broken", 1, (Said("b"),), 200, "engine_failed"), "wrong"),
        (Came("cut", 1), "cut"),
        (Came("error", 1, (), 502, "engine_failed"), "error"),
        (Came("error", 1, (), 502), "odd"),
        (Came("silent", 60), "silent"),
    ],
)
def test_what_came_back_is_judged(came: Came, found: str) -> None:
    record = Record()
    shot = Shot("next", "/v1/chat/completions", {}, {})
    assert record.took(shot, came, (Said("ab", finish="stop"),)) == found
    assert bool(record.faults) is (found in ("wrong", "silent", "odd"))
    assert found in record.table()
