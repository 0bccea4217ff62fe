"""How turns run when D may compute their new tokens: simulated engines, real leases."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from disaggpair_bed.leasebench import LeaseBench, lease_bench, tokens_read
from disaggpair_bed.routing import Dialogue, Routed, eventually
from disaggpair_router.plans import ChosenPlans
from disaggpair_router.way.backlog import IDLE

ID = {"conversation_id": "c"}
LONG = "Tell me of the river and of all the towns that lie on it, one after the other. " * 3
HEADER = "X-Way"
WAY = {"header": HEADER}


@pytest.fixture
async def bench() -> AsyncIterator[LeaseBench]:
    async with lease_bench() as one:
        yield one


async def forced(talk: Dialogue, way: str, text: str = "And then?", **fields: Any) -> Any:
    return await talk.say(text, headers={HEADER: way}, **fields)


def ways(front: Routed) -> dict[str, int]:
    """Turns by way."""
    names = ("FULL", "PULL", "DIRECT", "SINGLE")
    found = {name: int(front.count("turns_total", way=name)) for name in names}
    return {name: count for name, count in found.items() if count}


async def test_each_way_gives_the_answer_that_a_recompute_gives(bench: LeaseBench) -> None:
    async with bench.router(way=WAY) as front:
        for number, way in enumerate(("full", "pull", "direct", "direct", "pull")):
            talk = Dialogue(front, {"conversation_id": str(number)})
            await talk.say(LONG)
            control = talk.copy()
            control.fields = {"conversation_id": f"control {number}", "cache_salt": str(number)}
            answer, expected = await forced(talk, way), await control.say("And then?")
            assert answer.text == expected.text
        assert ways(front) == {"FULL": 11, "PULL": 2, "DIRECT": 2}


async def test_a_direct_turn_reads_nothing_and_leaves_a_lease(bench: LeaseBench) -> None:
    async with bench.router(way=WAY) as front:
        talk = Dialogue(front, dict(ID))
        await talk.say(LONG)
        read = tokens_read(bench.prefill)
        for stream in (False, True):
            assert (await forced(talk, "direct", stream=stream)).status == 200
            await eventually(lambda: bench.leases == 1)
        assert tokens_read(bench.prefill) == read
        assert front.hits == 2
        await forced(talk, "pull")
        assert tokens_read(bench.prefill) > read


async def test_a_turn_that_is_to_run_in_full_leaves_the_lease_to_nobody(bench: LeaseBench) -> None:
    async with bench.router(way=WAY) as front:
        talk = Dialogue(front, dict(ID))
        await talk.say(LONG)
        await forced(talk, "full")
        assert front.misses == {"first_turn": 1, "not_worth": 1}
        await eventually(lambda: bench.leases == 1)


async def test_without_a_choice_p_reads_and_a_header_forces_nothing(bench: LeaseBench) -> None:
    async with bench.router() as front:
        talk = Dialogue(front, dict(ID))
        await talk.say(LONG)
        await forced(talk, "direct")
        assert ways(front) == {"FULL": 1, "PULL": 1}


async def test_a_way_that_is_none_is_refused(bench: LeaseBench) -> None:
    async with bench.router(way=WAY) as front:
        reply = await forced(Dialogue(front), "sideways")
        assert reply.status == 400
        assert HEADER in reply.json["error"]["message"]


async def test_a_way_that_is_not_possible_is_not_taken(bench: LeaseBench) -> None:
    async with bench.router(way={**WAY, "direct": False}) as front:
        talk = Dialogue(front, dict(ID))
        await forced(talk, "direct", LONG)
        await forced(talk, "direct")
        assert "DIRECT" not in ways(front)


async def test_a_direct_turn_whose_lease_another_has_runs_over_two_legs(bench: LeaseBench) -> None:
    async with bench.router(way=WAY) as front:
        talk = Dialogue(front, dict(ID))
        await talk.say(LONG)
        fork = talk.copy()
        replies = await asyncio.gather(forced(talk, "direct"), forced(fork, "direct"))
        assert [reply.status for reply in replies] == [200, 200]
        assert replies[0].text == replies[1].text
        assert ways(front)["DIRECT"] >= 1


async def test_the_line_of_a_turn_says_why_it_ran_so(
    bench: LeaseBench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "disaggpair_router.turn")
    async with bench.router(way=WAY) as front:
        talk = Dialogue(front, dict(ID))
        await talk.say(LONG)
        await forced(talk, "direct", stream=True)
        await talk.say("on", stream=True)
    records: list[Any] = [record.__dict__["turn"] for record in caplog.records]
    assert [record.why for record in records[:2]] == ["", "forced"]
    assert records[2].why not in ("", "forced")
    assert {"FULL", "DIRECT"} <= set(records[2].estimates)
    assert front.count("ways_total", way="DIRECT", reason="forced") == 1


async def test_what_turns_take_is_learned(bench: LeaseBench) -> None:
    async with bench.router(way=WAY) as front:
        plans = front.router.parts.routes.turns._plans
        assert isinstance(plans, ChosenPlans)
        before = plans.rates.direct_s(1_000, 100, plans.decode_load("x"))
        for number in range(6):
            talk = Dialogue(front, {"conversation_id": str(number)})
            await talk.say(LONG, stream=True)
            await forced(talk, "direct", stream=True)
            await forced(talk, "pull", stream=True)
        # Simulated engines take next to no time.
        assert plans.rates.direct_s(1_000, 100, plans.decode_load("x")) < before
        assert plans.ratios.ratio("toy") != 4.0
        assert not any(map(len, [*plans.prefills.values(), *plans.decodes.values()]))


async def test_a_read_of_an_edited_history_teaches_nothing(bench: LeaseBench) -> None:
    chunks = LONG * 10
    async with bench.router(way=WAY) as front:
        plans = front.router.parts.routes.turns._plans
        assert isinstance(plans, ChosenPlans)
        rates = plans.rates
        await Dialogue(front, dict(ID)).say(chunks)
        estimate_s = rates.full_s(1_000, 100, IDLE)
        await Dialogue(front, dict(ID)).say(f"{chunks} Or of a lake.")
        assert tokens_read(bench.prefill) > 0
        assert rates.full_s(1_000, 100, IDLE) == estimate_s
