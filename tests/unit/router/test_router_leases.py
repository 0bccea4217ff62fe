"""Turns whose history D holds under leases: simulated engines, real lease listeners."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import orjson
import pytest

from disaggpair_bed.leasebench import LeaseBench, lease_bench, tokens_read
from disaggpair_bed.routing import Dialogue, as_message, eventually, routed
from disaggpair_bed.simengine import running_engine
from disaggpair_router.errors import ConfigError
from disaggpair_router.leases.claims import LeaseClaim

ID = {"conversation_id": "c"}
LONG = "Tell me of the river and of all the towns that lie on it, one after the other. "
QUESTION = LONG * 3


@pytest.fixture
async def bench() -> AsyncIterator[LeaseBench]:
    async with lease_bench() as one:
        yield one


async def test_the_next_turn_reads_what_d_has_leased(bench: LeaseBench) -> None:
    async with bench.router() as front:
        talk = Dialogue(front, dict(ID))
        await talk.say(QUESTION)
        assert (front.hits, front.misses, bench.leases) == (0, {"first_turn": 1}, 1)
        await talk.say(QUESTION)
        assert (front.hits, front.misses) == (1, {"first_turn": 1})
        assert tokens_read(bench.prefill) > 0
        await eventually(lambda: bench.leases == 1)
        assert front.handles == 1


async def test_a_router_that_has_just_started_knows_every_conversation(bench: LeaseBench) -> None:
    async with bench.router() as front:
        talk = Dialogue(front, dict(ID))
        await talk.say(QUESTION)
        unnamed = Dialogue(front)
        await unnamed.say(LONG)
    async with bench.router() as another:
        for one in (talk, unnamed):
            one.routed = another
            assert (await one.say(QUESTION)).status == 200
        assert (another.hits, another.misses) == (2, {})


async def test_of_two_routers_one_has_the_lease(bench: LeaseBench) -> None:
    async with bench.router() as front, bench.router() as other:
        talk = Dialogue(front, dict(ID))
        await talk.say(QUESTION)
        await eventually(lambda: other.handles == 1)
        body = {"model": "toy", "messages": [*talk.messages, as_message(QUESTION)], **ID}
        claims = []
        for one in (front, other):
            parts = one.router.parts
            request = parts.routes.requests.reader.read(
                "chat", orjson.dumps(body), {}, "r", parts.routes.door.caller({}, "")
            )
            p = next(engine for engine in parts.endpoints if engine.role == "prefill")
            claims.append(parts.held.turn(request).claim(p))
        found = await asyncio.gather(*claims)
        assert sorted(map(type, found), key=str) == [LeaseClaim, str]
        assert "claimed" in found


async def test_turns_of_one_conversation_at_two_routers_are_both_right(bench: LeaseBench) -> None:
    async with bench.router() as front, bench.router() as other:
        talk = Dialogue(front, dict(ID))
        await talk.say(QUESTION)
        await eventually(lambda: other.handles == 1)
        fork = talk.copy()
        fork.routed = other
        replies = await asyncio.gather(talk.say(QUESTION), fork.say(QUESTION))
        assert [reply.status for reply in replies] == [200, 200]
        assert replies[0].text == replies[1].text
        assert front.hits + other.hits >= 1


async def test_streams_leave_leases_on_releases_whose_streams_do_not_tell_of_them() -> None:
    async with (
        lease_bench(release="0.32.0") as bench,
        bench.router(kv={"handle_in_stream": False}) as front,
    ):
        talk = Dialogue(front, dict(ID))
        for _ in range(4):
            reply = await talk.say(QUESTION, stream=True)
            assert len(reply.chunks) > 3
        assert (front.hits, front.misses) == (3, {"first_turn": 1})


async def test_another_callers_id_finds_nothing(bench: LeaseBench) -> None:
    async with bench.router() as front:
        mine = {"headers": {"Authorization": "Bearer mine"}}
        theirs = {"headers": {"Authorization": "Bearer theirs"}}
        first = await front.chat(QUESTION, **ID, **mine)
        answer = {"role": "assistant", "content": first.text}
        await front.chat(QUESTION, answer, "on", **ID, **theirs)
        assert front.misses == {"first_turn": 2}
        await front.chat(QUESTION, answer, "on", **ID, **mine)
        assert front.hits == 1


async def test_two_children_of_one_turn_share_nothing(bench: LeaseBench) -> None:
    async with bench.router() as front:
        talk = Dialogue(front)
        await talk.say(QUESTION)
        fork = talk.copy()
        replies = await asyncio.gather(talk.say(LONG + "One."), fork.say(LONG + "Two."))
        assert [reply.status for reply in replies] == [200, 200]
        assert front.hits == 1
        await asyncio.gather(talk.say("on"), fork.say("on"))
        assert front.hits == 3


async def test_an_edited_history_reads_what_is_common(bench: LeaseBench) -> None:
    async with bench.router() as front:
        talk = Dialogue(front, dict(ID))
        await talk.say(QUESTION * 8)
        await talk.say("on")
        before = tokens_read(bench.prefill)
        talk.messages[-1] = {"role": "assistant", "content": "Something else."}
        await talk.say("on")
        assert front.hits == 2
        assert tokens_read(bench.prefill) > before


async def test_a_turn_that_reads_nothing_gives_the_older_lease_back(bench: LeaseBench) -> None:
    async with bench.router() as front:
        await front.chat(QUESTION, **ID)
        await front.chat(QUESTION, **ID, tools=[])
        assert front.misses == {"first_turn": 1, "scope": 1}
        await eventually(lambda: bench.leases == 1)
        await eventually(lambda: front.count("handle_releases_total", result="released") == 1)


async def test_a_d_that_restarts_is_not_read_from(bench: LeaseBench) -> None:
    async with bench.router() as front:
        talk = Dialogue(front, dict(ID))
        await talk.say(QUESTION)
        await bench.decode.restart()
        await eventually(lambda: front.handles == 0)
        await eventually(lambda: all(one.ready for one in front.router.parts.endpoints))
        assert (await talk.say(QUESTION)).status == 200
        assert front.hits == 0
        await eventually(lambda: front.handles == 1)
        await talk.say("on")
        assert front.hits == 1


async def test_a_claim_whose_p_cannot_be_reached_serves_the_next_p(bench: LeaseBench) -> None:
    async with running_engine("prefill", connector="DisaggPair") as gone:
        pass
    async with bench.router(gone.url, bench.prefill, wait_ready=False) as front:
        await eventually(lambda: sum(one.ready for one in front.router.parts.endpoints) == 2)
        talk = Dialogue(front, dict(ID))
        await talk.say(QUESTION)
        # As it is in the seconds before a probe finds out.
        registry = front.router.parts.endpoints
        dead = next(one for one in registry if not one.ready)
        registry.put(type(dead)(dead.name, dead.url, dead.role, True, dead.incarnation))
        await talk.say(QUESTION)
        assert front.hits == 1


async def test_what_p_refuses_gives_the_lease_back(bench: LeaseBench) -> None:
    async with bench.router() as front:
        talk = Dialogue(front, dict(ID))
        await talk.say(QUESTION)
        bench.prefill.faults.add("status", status=400)
        assert (await talk.say("on")).status == 400
        await eventually(lambda: bench.leases == 0)


async def test_a_turn_that_d_serves_alone_leaves_a_lease(bench: LeaseBench) -> None:
    async with bench.router() as front:
        registry = front.router.parts.endpoints
        p = next(one for one in registry if one.role == "prefill")
        registry.suspect(p, 60)
        talk = Dialogue(front, dict(ID))
        await talk.say(QUESTION)
        assert front.count("turns_total", way="SINGLE") == 1
        registry._suspects.clear()
        await talk.say(QUESTION)
        assert front.hits == 1


async def test_requests_that_share_nothing_leave_no_lease(bench: LeaseBench) -> None:
    async with bench.router() as front:
        await front.chat(QUESTION, **ID, n=2)
        await front.post("/v1/completions", {"model": "toy", "prompt": ["a", "b"]})
        assert (bench.leases, front.handles) == (0, 0)


async def test_answers_with_reasoning_are_leased_as_any_other(bench: LeaseBench) -> None:
    async with bench.router() as front:
        await front.chat(QUESTION, **ID, stop=[" "])
        talk = Dialogue(front, {"conversation_id": "d"})
        talk.messages.append({"role": "assistant", "content": " <think>so</think> "})
        await talk.say(QUESTION)
        await talk.say("on")
        assert front.hits == 1


async def test_without_the_listeners_key_a_router_does_not_start() -> None:
    async with AsyncExitStack() as stack:
        with pytest.raises(ConfigError, match="DISAGGPAIR_LEASE_KEY"):
            await stack.enter_async_context(routed(["http://p"], ["http://d"], kv={"leases": {}}))
