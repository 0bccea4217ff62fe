"""A client that leaves: nothing is lost that was not in use, and no engine is cut in a read."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import orjson
import pytest
from aiohttp import web

from disaggpair_bed.fakes.upstream import (
    Recorded,
    ScriptedEngine,
    chat_events,
    decode_handle,
    decoding,
    prefilling,
    scripted_engine,
)
from disaggpair_bed.routing import Dialogue, Routed, eventually, routed
from disaggpair_bed.simengine import running_engine
from disaggpair_router.errors import ClientLeft
from disaggpair_router.running import Running

ID = {"conversation_id": "c-1"}
FIRST = b'data: {"choices": [{"index": 0, "delta": {"content": "Hello there"}}]}\n\n'


@dataclass
class Stage:
    """Two scripted engines that wait at a gate, and a client that can leave."""

    prefill: ScriptedEngine
    decode: ScriptedEngine
    front: Routed
    prefill_gate: asyncio.Event = field(default_factory=asyncio.Event)
    decode_gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def left(self, when: Any, **fields: Any) -> None:
        """Send a turn, and close the connection once `when` holds."""
        turn = asyncio.create_task(self.front.chat("hello", **ID, **fields))
        await eventually(when)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn

    def stages(self) -> dict[str, float]:
        return {
            stage: count
            for stage in ("before", "prefill", "decode", "stream")
            if (count := self.front.count("client_disconnects_total", stage=stage))
        }


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(decoding()) as decode,
        routed([prefill], [decode]) as front,
    ):
        one = Stage(prefill, decode, front)

        async def gated_prefill(recorded: Recorded) -> web.StreamResponse:
            await one.prefill_gate.wait()
            return await prefilling()(recorded)

        async def gated_decode(recorded: Recorded) -> web.StreamResponse:
            await one.decode_gate.wait()
            return await decoding()(recorded)

        prefill.script, decode.script = gated_prefill, gated_decode
        yield one


async def test_h16_the_prefill_leg_runs_to_its_end(stage: Stage) -> None:
    await stage.left(lambda: stage.prefill.requests)
    await eventually(lambda: stage.front.router.parts.running.abandoned == 1)
    stage.prefill_gate.set()
    await eventually(lambda: stage.stages() == {"prefill": 1})
    assert stage.prefill.lost_connections == 0
    assert stage.decode.requests == []


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_h18_decode_is_not_cut_before_its_first_byte(stage: Stage, stream: bool) -> None:
    stage.prefill_gate.set()
    await stage.left(lambda: stage.decode.requests, stream=stream)
    await eventually(lambda: stage.front.router.parts.running.abandoned == 1)
    assert stage.decode.lost_connections == 0
    stage.decode_gate.set()
    await eventually(lambda: stage.stages() == {"decode": 1})
    assert stage.front.handles == 0


async def test_h18_a_whole_answer_nobody_waits_for_is_released(stage: Stage) -> None:
    stage.prefill_gate.set()
    await stage.left(lambda: stage.decode.requests)
    await eventually(lambda: stage.front.router.parts.running.abandoned == 1)
    stage.decode_gate.set()
    await eventually(lambda: stage.front.count("handle_releases_total", result="released") == 1)
    assert stage.prefill.requests[-1].params == decode_handle(remote_num_tokens=0)


async def test_h18_decode_is_cut_at_once_after_its_first_byte(stage: Stage) -> None:
    async def endless(recorded: Recorded) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(recorded.http)
        await response.write(FIRST)
        await stage.decode_gate.wait()
        return response

    stage.prefill_gate.set()
    stage.decode.script = endless
    await stage.left(
        lambda: stage.front.count("ttft_seconds_count", way="FULL") == 1,
        stream=True,
    )
    await eventually(lambda: stage.decode.lost_connections == 1, bound_s=5)
    await eventually(lambda: stage.stages() == {"stream": 1})
    assert stage.front.handles == 0


async def test_h19_a_handle_that_has_come_is_kept(stage: Stage) -> None:
    events = chat_events(decode_handle())
    head, done = events[: -len(b"data: [DONE]\n\n")], b"data: [DONE]\n\n"

    async def late_end(recorded: Recorded) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(recorded.http)
        await response.write(head)
        await stage.decode_gate.wait()
        await response.write(done)
        return response

    stage.prefill_gate.set()
    stage.decode.script = late_end
    await stage.left(lambda: stage.front.count("ttft_seconds_count", way="FULL") == 1, stream=True)
    await eventually(lambda: stage.front.router.parts.running.abandoned == 1)
    stage.decode_gate.set()
    await eventually(lambda: stage.front.handles == 1)
    assert stage.decode.lost_connections == 0


async def test_h15_a_client_that_left_claims_nothing(stage: Stage) -> None:
    stage.prefill_gate.set()
    stage.decode_gate.set()
    dialogue = Dialogue(stage.front, dict(ID))
    await dialogue.say("one")
    reader = stage.front.router.parts.routes.requests.reader
    client = Gone()
    body = {"messages": [*dialogue.messages, {"role": "user", "content": "two"}], **ID}
    request = reader.read("chat", orjson.dumps(body), {}, "r-1")
    with pytest.raises(ClientLeft):
        await stage.front.router.parts.routes.turns.run(request, client)
    assert stage.stages() == {"before": 1}
    assert stage.front.handles == 1


class Gone:
    """A client that left before its turn began."""

    is_gone = True
    has_begun = False

    def send(self, data: bytes, *, last: bool = False) -> bool:
        raise AssertionError

    async def drained(self) -> None:
        raise AssertionError

    def when_gone(self, cut: Any) -> None:
        raise AssertionError


def _has_requests(engine: ScriptedEngine, count: int) -> bool:
    return len(engine.requests) == count


def _are(running: Running, engine: ScriptedEngine, abandoned: int, cut: int) -> bool:
    return (running.abandoned, engine.lost_connections) == (abandoned, cut)


async def test_h16_turns_without_a_client_are_bounded() -> None:
    gate = asyncio.Event()

    async def waits(recorded: Recorded) -> web.StreamResponse:
        await gate.wait()
        return await prefilling()(recorded)

    async with (
        scripted_engine(waits) as prefill,
        scripted_engine(decoding()) as decode,
        routed([prefill], [decode], limits={"max_abandoned": 2}) as front,
    ):
        running = front.router.parts.running
        for number in range(4):
            turn = asyncio.create_task(front.chat("hello"))
            await eventually(partial(_has_requests, prefill, number + 1))
            turn.cancel()
            kept = min(number + 1, 2)
            await eventually(partial(_are, running, prefill, kept, number + 1 - kept))
        assert prefill.lost_connections == 2
        gate.set()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_h16_simulated_engines_survive_clients_that_leave(stream: bool) -> None:
    slow = ("--sim-prefill-tokens-per-s", "4000", "--sim-token-s", "0.005")
    async with (
        running_engine("prefill", "--no-enable-prefix-caching", *slow) as prefill,
        running_engine("decode", *slow) as decode,
        routed([prefill], [decode]) as front,
    ):
        dialogue = Dialogue(front, dict(ID))
        await dialogue.say("word " * 100)
        for wait_s in (0.0, 0.02, 0.05, 0.1, 0.15, 0.2):
            turn = asyncio.create_task(dialogue.copy().say("word " * 100, stream=stream))
            await asyncio.sleep(wait_s)
            turn.cancel()
        running = front.router.parts.running
        await eventually(lambda: running.abandoned == 0)
        assert (await dialogue.say("word " * 100)).status == 200
        assert not prefill.engine.died.is_set()
        assert not decode.engine.died.is_set()
        assert prefill.engine.oracle.violations == decode.engine.oracle.violations == []


async def test_h96_a_slow_client_slows_the_decode_stream_down() -> None:
    sent = 0
    piece = b"data: " + b"x" * 65_536 + b"\n\n"

    async def torrent(recorded: Recorded) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(recorded.http)
        for _ in range(2_000):
            await response.write(piece)
            sent += 1
        return response

    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(torrent) as decode,
        routed([prefill], [decode]) as front,
    ):
        body = {"messages": [], "stream": True}
        async with front.http.post("/v1/chat/completions", json=body) as response:
            await response.content.readany()
            before = -1
            while before != sent:
                before = sent
                await asyncio.sleep(0.3)
            # 128 MB would come; what is under way is what sockets and buffers hold.
            assert 0 < sent < 1_000


async def test_a_drain_lets_streams_end_and_turns_readiness_off(stage: Stage) -> None:
    stage.prefill_gate.set()
    running = stage.front.router.parts.running
    turn = asyncio.create_task(stage.front.chat("hello", stream=True))
    await eventually(lambda: stage.decode.requests)
    drained = asyncio.create_task(running.drain(10))
    await eventually(lambda: running.is_draining)
    assert (await stage.front.get("/readyz")).status == 503
    stage.decode_gate.set()
    assert (await turn).raw.endswith(b"data: [DONE]\n\n")
    await drained


async def test_a_drain_cuts_what_does_not_end(stage: Stage) -> None:
    stage.prefill_gate.set()
    turn = asyncio.create_task(stage.front.chat("hello"))
    await eventually(lambda: stage.decode.requests)
    await stage.front.router.parts.running.drain(0.1)
    assert (await turn).status == 503


async def test_a_turn_that_begins_in_a_drain_is_sent_elsewhere(stage: Stage) -> None:
    await stage.front.router.parts.running.drain(10)
    reply = await stage.front.chat("hello")
    assert (reply.status, reply.json["error"]["code"]) == (503, "no_endpoint")
    assert reply.headers["Retry-After"]
    assert not stage.prefill.requests
