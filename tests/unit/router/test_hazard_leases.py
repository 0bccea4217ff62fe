"""Hazards of restarts, replicas, ranks, addresses and silent listeners, under leases."""

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from disaggpair_bed.chaos.bench import Bench, lease_bench, leases_of, tokens_read
from disaggpair_bed.chaos.truth import Truth
from disaggpair_bed.routing import Dialogue, Routed, as_message, eventually
from disaggpair_bed.simengine.pairconnector import PairConnector
from disaggpair_router.leases.board import LeaseBoard, Owner
from disaggpair_router.leases.rows import Row
from disaggpair_router.pick import Endpoint

ID = {"conversation_id": "c"}
LONG = "Tell me of the river and of all the towns that lie on it, one after the other. " * 3


def right(bench: Bench, talk: Dialogue) -> str:
    """The answer that the last turn of a conversation has to have had."""
    body = {"model": "toy", "messages": talk.messages[:-1]}
    answers = Truth(bench.decode.ranks.options).answers("/v1/chat/completions", body)
    assert answers is not None
    return answers[0].text


async def said(bench: Bench, talk: Dialogue, text: str = LONG, **fields: Any) -> None:
    """One turn, whose answer is right."""
    assert (await talk.say(text, **fields)).status == 200
    assert talk.messages[-1]["content"] == right(bench, talk)


async def known(front: Routed, count: int = 1) -> None:
    """Wait until a router knows of so many leases."""
    await eventually(lambda: front.handles == count)


async def test_h10_of_two_streams_of_one_conversation_the_later_lease_is_the_next_turns() -> None:
    async with lease_bench() as bench, bench.router() as front:
        talk = Dialogue(front, dict(ID))
        await said(bench, talk)
        other = talk.copy()
        await asyncio.gather(
            said(bench, talk, "one", stream=True), said(bench, other, LONG + "two", stream=True)
        )
        # Each goes on from its own lease, whichever came last.
        await said(bench, talk, "on")
        await said(bench, other, "on")
        assert front.misses.get("scope", 0) == 0


async def test_h35_the_decode_leg_goes_to_the_rank_that_holds_the_conversation() -> None:
    async with (
        lease_bench(flags=("--data-parallel-size", "4")) as bench,
        bench.router() as front,
    ):
        talks = [Dialogue(front, {"conversation_id": str(number)}) for number in range(4)]
        await asyncio.gather(*(said(bench, talk, f"{n} {LONG}") for n, talk in enumerate(talks)))
        await known(front, 4)
        bench.decode.recorder.received.clear()
        for talk in talks:
            await said(bench, talk)
        asked = [one.headers["x-data-parallel-rank"] for one in bench.decode.recorder.received]

        def consumed() -> list[int]:
            return [one.oracle.count("consumed", "decode") for one in bench.decode.ranks.engines]

        # Each turn was read from a rank and then decoded there.
        await eventually(lambda: sum(consumed()) == 4)
        assert [asked.count(str(rank)) for rank in range(4)] == consumed()


async def test_h41_a_d_that_slept_is_not_read_from() -> None:
    async with lease_bench() as bench, bench.router() as front:
        talk = Dialogue(front, dict(ID))
        await said(bench, talk)
        async with aiohttp.ClientSession(bench.decode.url) as http:
            await http.post("/sleep?level=1")
            await http.post("/wake_up")
        await known(front, 0)
        await said(bench, talk)
        assert front.hits == 0
        await said(bench, talk)
        assert front.hits == 1


async def test_h41_what_was_computed_with_other_weights_is_not_read() -> None:
    async with lease_bench() as bench, bench.router() as front:
        talk = Dialogue(front, dict(ID))
        await said(bench, talk)
        for engine in bench.engines:
            async with aiohttp.ClientSession(engine.url) as http:
                await http.post("/update_weights")
                await http.post("/reset_prefix_cache")
        await known(front, 0)
        control = await front.chat(*talk.messages, LONG, cache_salt="control")
        assert (await talk.say(LONG)).text == control.text
        assert front.hits == 0


async def test_h44b_a_d_that_preempts_still_gives_the_right_answers() -> None:
    async with (
        lease_bench(
            flags=(
                *("--num-gpu-blocks-override", "40", "--sim-answer-tokens", "60-80"),
                *("--sim-token-s", "0.002"),  # the answers are there at the same time
            )
        ) as bench,
        bench.router() as front,
    ):
        talks = [Dialogue(front, {"conversation_id": str(number)}) for number in range(6)]
        for _ in range(2):
            await asyncio.gather(*(in_time(said(bench, talk)) for talk in talks))
        assert bench.decode.engine.core.stats.preemptions > 0


@pytest.mark.parametrize("prefix_caching", [True, False])
async def test_h101_full_engines_that_hold_each_others_leases_go_on(prefix_caching: bool) -> None:
    flags = ("--num-gpu-blocks-override", "40", "--sim-answer-tokens", "60-80")
    caching = () if prefix_caching else ("--no-enable-prefix-caching",)
    # Whether both engines fill up at once hangs on who comes first, and mostly they do.
    for _ in range(10):
        async with (
            lease_bench(flags=flags, prefill_flags=caching) as bench,
            bench.router() as front,
        ):
            await two_turns_of_six(bench, front)
            if bench.prefill.engine.core.stats.refused_reads.get("late"):
                return
    pytest.fail("P and D never waited for each other")


async def two_turns_of_six(bench: Bench, front: Routed) -> None:
    """Six conversations at once, each of which is answered right and in time."""
    talks = [Dialogue(front, {"conversation_id": str(number)}) for number in range(6)]
    for turn in range(2):
        texts = [f"{number} {turn} {LONG}" for number in range(6)]
        turns = zip(talks, texts, strict=True)
        await asyncio.gather(*(in_time(said(bench, *one)) for one in turns))


async def in_time(turn: Coroutine[Any, Any, None]) -> None:
    """A turn that waits for no lease to run out, which takes 30 s."""
    async with asyncio.timeout(15):
        await turn


async def test_h82_after_a_restart_every_conversation_goes_on() -> None:
    async with lease_bench() as bench:
        async with bench.router() as front:
            talks = [Dialogue(front, {"conversation_id": str(number)}) for number in range(3)]
            for talk in talks:
                await said(bench, talk)
        async with bench.router() as front:
            await known(front, 3)
            for talk in talks:
                talk.routed = front
                await said(bench, talk)
            assert (front.hits, front.misses) == (3, {})


async def test_h82_a_turn_before_the_list_has_come_is_a_first_turn() -> None:
    async with lease_bench() as bench:
        async with bench.router() as front:
            talk = Dialogue(front, dict(ID))
            await said(bench, talk)
        bench.decode.faults.add("lease_silent", count=None, route="list")
        async with bench.router(wait_ready=False) as front:
            await eventually(lambda: front.router.parts.endpoints.can_serve)
            talk.routed = front
            await said(bench, talk)
            assert front.misses == {"first_turn": 1}
            bench.decode.faults.clear()


async def test_h83_of_a_hundred_races_of_two_routers_none_gives_a_lease_twice() -> None:
    async with lease_bench() as bench, bench.router() as front, bench.router() as other:

        async def race(number: int) -> None:
            talk = Dialogue(front, {"conversation_id": str(number)})
            await talk.say(f"{number}. What of the mill? " * 16)
            await eventually(lambda: front.handles == other.handles)
            fork = talk.copy()
            fork.routed = other
            replies = await asyncio.gather(talk.say("on"), fork.say("on"))
            assert [reply.status for reply in replies] == [200, 200]
            assert replies[0].text == replies[1].text

        for start in range(0, 100, 5):
            await asyncio.gather(*(race(start + number) for number in range(5)))
        oracle = bench.decode.engine.oracle
        await eventually(lambda: oracle.count("consumed", "decode") == front.hits + other.hits)
        # Of two turns the later one may go on from the lease of the earlier one.
        assert front.hits + other.hits >= 90


@pytest.mark.parametrize(
    "fault", ["lease_silent", "lease_drop", "lease_garbage", "lease_malformed"]
)
async def test_h84_a_listener_that_fails_costs_one_claim_and_no_turn(fault: str) -> None:
    async with (
        lease_bench() as bench,
        bench.router(kv={"leases": {"port": bench.lease_port, "claim_s": 0.3}}) as front,
    ):
        talk = Dialogue(front, dict(ID))
        await said(bench, talk)
        bench.decode.faults.add(fault, count=None)
        bench.decode.engine.cut_watches()
        began = time.monotonic()
        await said(bench, talk)
        assert time.monotonic() - began < 5
        assert front.misses["unreachable"] == 1
        bench.decode.faults.clear()
        held: Any = front.router.parts.held
        await eventually(lambda: any(map(held._followers.can_claim, held._followers._tasks)))
        await said(bench, talk)
        await said(bench, talk)
        assert front.hits >= 1


async def has_caught_up(bench: Bench, board: LeaseBoard) -> None:
    """No event of D's is on its way any more."""
    connector = bench.decode.engine.core.connector
    assert isinstance(connector, PairConnector)
    (owner,) = {one.owner for one in board}
    await eventually(lambda: board.since(owner) == (connector.book.epoch, connector.book.sequence))


async def test_h84_a_silent_listener_is_asked_no_more() -> None:
    async with lease_bench() as bench, bench.router() as front:
        talk = Dialogue(front, dict(ID))
        await said(bench, talk)
        held: Any = front.router.parts.held
        held._followers.can_claim = lambda _: False
        await said(bench, talk)
        assert front.misses["unreachable"] == 1


async def test_h85_a_lease_that_somebody_else_wrote_gives_no_wrong_answer() -> None:
    async with lease_bench() as bench, bench.router() as front:
        victim = Dialogue(front, {"conversation_id": "victim"})
        await said(bench, victim)
        board = front.router.parts.held.board  # type: ignore[attr-defined]  # with leases it is Leases
        await has_caught_up(bench, board)
        (found,) = list(board)
        talk = Dialogue(front, dict(ID))
        await said(bench, talk)
        await has_caught_up(bench, board)
        (own,) = [one for one in board if one.row.id != found.row.id]
        # The victim's lease, said to belong to this conversation.
        for one in (own, found):
            board.forget(one)
        board.add(found.owner, replace(found.row, place=own.row.place))
        before = tokens_read(bench.prefill)
        await said(bench, talk)
        assert front.hits == 1
        # What both prompts begin with is all that P could take.
        assert tokens_read(bench.prefill) - before <= found.row.tokens


async def test_h85_a_row_that_no_lease_is_behind_costs_a_claim() -> None:
    async with lease_bench() as bench, bench.router() as front:
        talk = Dialogue(front, dict(ID))
        await said(bench, talk)
        board = front.router.parts.held.board  # type: ignore[attr-defined]  # with leases it is Leases
        await has_caught_up(bench, board)
        (found,) = list(board)
        board.forget(found)
        board.add(found.owner, Row("0" * 16, found.row.place, "granted", 10**6, 1.0))
        await said(bench, talk)
        assert front.misses["gone"] == 1


@pytest.mark.parametrize("delay_s", [1.0, 3.5])
async def test_h94_a_d_that_begins_after_ps_lease_gives_the_right_answer(delay_s: float) -> None:
    async with (
        lease_bench(extra={"kv_lease_duration": 2}) as bench,
        bench.router() as front,
    ):
        talk = Dialogue(front, dict(ID))
        await said(bench, talk)
        bench.decode.faults.add("delay", delay_s=delay_s)
        await said(bench, talk)
        await eventually(lambda: leases_of(bench.prefill) == 0)


async def test_h94_a_d_whose_queue_is_full_keeps_ps_blocks_by_heartbeats() -> None:
    async with (
        lease_bench(
            flags=("--max-num-seqs", "1", "--sim-token-s", "0.04", "--sim-answer-tokens", "20-20"),
            extra={"kv_lease_duration": 2},
        ) as bench,
        bench.router() as front,
    ):
        talks = [Dialogue(front, {"conversation_id": str(number)}) for number in range(5)]
        await asyncio.gather(*(said(bench, talk) for talk in talks))
        await eventually(lambda: leases_of(bench.prefill) == 0)
        assert bench.prefill.engine.oracle.count("expired", "prefill") == 0


async def test_h100_an_address_that_another_pod_has_now_is_another_engine() -> None:
    async with lease_bench() as bench, bench.router(timeouts={"probe_s": 3600}) as front:
        talk = Dialogue(front, dict(ID))
        await said(bench, talk)
        endpoints = front.router.parts.endpoints
        before = next(one for one in endpoints if one.role == "decode")
        await bench.decode.restart()
        endpoints.remove(before.name)
        endpoints.put(Endpoint("another-uid", before.url, "decode", ready=True, incarnation="1"))
        await known(front, 0)
        held: Any = front.router.parts.held
        await eventually(lambda: held._followers.can_claim(Owner("another-uid", "1")))
        await said(bench, talk)
        assert front.hits == 0
        await known(front)
        await said(bench, talk)
        assert front.hits == 1


async def test_h100_an_engine_that_changed_unseen_is_found_out_by_its_epoch() -> None:
    async with lease_bench() as bench, bench.router(timeouts={"probe_s": 3600}) as front:
        talk = Dialogue(front, dict(ID))
        await said(bench, talk)
        # Neither a probe nor the API server has told of it.
        await bench.decode.restart()
        await said(bench, talk)
        assert front.hits == 0
        assert as_message(LONG) in talk.messages


async def test_h12_a_chat_that_never_returns_ends_by_itself() -> None:
    async with (
        lease_bench(extra={"decoder_kv_blocks_ttl": 1.5}) as bench,
        bench.router() as front,
    ):
        await asyncio.gather(*(front.chat(f"{number} {LONG}") for number in range(5)))
        assert front.handles == 5
        await eventually(lambda: bench.leases == 0)
        await known(front, 0)
