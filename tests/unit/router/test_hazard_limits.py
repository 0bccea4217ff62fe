"""Time limits, one by one, and clients that leave between the legs (h17, h43, h93, h07)."""

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from aiohttp import web

from disaggpair_bed.chaos.bench import lease_bench, leases_of
from disaggpair_bed.fakes.upstream import (
    Recorded,
    chat_events,
    decode_handle,
    decoding,
    hangs,
    in_turn,
    prefilling,
    scripted_engine,
    streams,
)
from disaggpair_bed.routing import Dialogue, eventually, routed, waiting_dialogue
from disaggpair_bed.simengine import running_engine

ID = {"conversation_id": "c-1"}
LIMIT_S = 0.4
BEGUN = b'data: {"choices": [{"index": 0, "delta": {"content": "Hel"}}]}\n\n'


async def stalls(recorded: Recorded) -> web.StreamResponse:
    """Begins a stream and says no more."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(recorded.http)
    await response.write(BEGUN)
    return await hangs(recorded)


@contextmanager
def deaf_port() -> Iterator[int]:
    """A port whose queue of connections is full, so that one more is never made."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        port = listening.getsockname()[1]
        waiting = []
        try:
            for _ in range(20):
                one = socket.socket()
                waiting.append(one)
                one.settimeout(0.05)
                try:
                    one.connect(("127.0.0.1", port))
                except TimeoutError:
                    break
            yield port
        finally:
            for one in waiting:
                one.close()


@pytest.mark.parametrize(
    ("limit", "prefill", "decode", "stream", "code"),
    [
        pytest.param("prefill_s", hangs, decoding(), False, "engine_timeout", id="h93-prefill"),
        pytest.param(
            "decode_first_byte_s", prefilling(), hangs, False, "engine_timeout", id="h93-decode"
        ),
        pytest.param(
            "decode_first_byte_s", prefilling(), hangs, True, "engine_timeout", id="h93-first-byte"
        ),
        pytest.param("decode_idle_s", prefilling(), stalls, True, "engine_timeout", id="h93-idle"),
    ],
)
async def test_every_wait_for_an_engine_has_an_end(
    limit: str, prefill: Any, decode: Any, stream: bool, code: str
) -> None:
    async with (
        scripted_engine(prefill) as p,
        scripted_engine(decode) as d,
        routed([p], [d], timeouts={limit: LIMIT_S}, fallback="Refuse") as front,
    ):
        began = time.monotonic()
        reply = await front.chat("hello", stream=stream)
        assert LIMIT_S <= time.monotonic() - began < 20
        last = reply.chunks[-1] if reply.raw.startswith(b"data:") else reply.json
        assert last["error"]["code"] == code


async def test_h93_a_connection_that_is_never_made_has_an_end() -> None:
    with deaf_port() as port:
        async with routed(
            ["http://127.0.0.1:9"],
            [f"http://127.0.0.1:{port}"],
            wait_ready=False,
            timeouts={"connect_s": LIMIT_S, "probe_s": 3600},
        ) as front:
            endpoints = front.router.parts.endpoints
            found = next(one for one in endpoints if one.role == "decode")
            await asyncio.sleep(0)
            endpoints.put(type(found)(found.name, found.url, found.role, True, "1"))
            began = time.monotonic()
            reply = await front.chat("hello")
            assert reply.status in (502, 504)
            assert time.monotonic() - began < 20


async def test_h93_a_client_that_reads_slowly_uses_up_no_limit_of_the_engine() -> None:
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(streams(chat_events(decode_handle()))) as decode,
        routed([prefill], [decode], timeouts={"decode_idle_s": 0.2}) as front,
    ):
        body = {"messages": [], "stream": True}
        async with front.http.post("/v1/chat/completions", json=body) as response:
            first = await response.content.readexactly(5)
            await asyncio.sleep(0.5)
            assert (first + await response.read()).endswith(b"data: [DONE]\n\n")


async def test_h43_a_read_that_never_ends_is_given_up_and_p_gets_no_handles_for_a_time() -> None:
    async with (
        lease_bench() as bench,
        bench.router(timeouts={"prefill_s": 1}) as front,
    ):
        talk = Dialogue(front, dict(ID))
        await talk.say("Tell me of the river and of all the towns that lie on it. " * 4)
        bench.prefill.faults.add("hang_read", count=None)
        first = await talk.say("on")
        assert first.status == 200
        assert front.misses["refused"] == 1
        second = await talk.say("on")
        assert second.status == 200
        assert front.misses["paused"] == 1
        bench.prefill.faults.clear()
        # The read was aborted with the leg, which our router cannot avoid.
        await eventually(lambda: not bench.prefill.engine.core.queues.reading)
        bench.prefill.engine.oracle.violations.clear()


async def test_h17_a_client_that_leaves_between_the_legs_costs_ps_lease_and_is_counted() -> None:
    async with (
        running_engine("prefill", extra={"kv_lease_duration": 1}) as prefill,
        running_engine("decode") as decode,
        routed([prefill], [decode]) as front,
    ):
        prefill.faults.add("delay", delay_s=0.3)
        body = {"model": "toy", "messages": [{"role": "user", "content": "hello " * 60}]}
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await front.post("/v1/chat/completions", body)
        await eventually(lambda: front.count("client_disconnects_total", stage="prefill") == 1)
        assert decode.engine.oracle.handles == {}
        await eventually(lambda: prefill.engine.oracle.count("expired", "prefill") == 1)
        assert prefill.engine.core.pool.used_blocks == 0


async def test_h17_under_leases_ps_blocks_are_free_again_by_themselves() -> None:
    async with (
        lease_bench(extra={"kv_lease_duration": 1}) as bench,
        bench.router() as front,
    ):
        bench.prefill.faults.add("delay", delay_s=0.3)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await front.chat("hello " * 60)
        await eventually(lambda: front.count("client_disconnects_total", stage="prefill") == 1)
        await eventually(lambda: leases_of(bench.prefill) == 0)
        await eventually(lambda: bench.prefill.engine.core.pool.used_blocks == 0)


async def test_h07_a_jump_of_the_wall_clock_changes_nothing(monkeypatch: Any) -> None:
    async with (
        scripted_engine(in_turn(prefilling())) as prefill,
        scripted_engine(decoding()) as decode,
        routed([prefill], [decode]) as front,
    ):
        dialogue = await waiting_dialogue(front)
        wall = time.time
        for jump in (-1e6, 1e6):
            monkeypatch.setattr(time, "time", lambda jump=jump: wall() + jump)
            front.router.parts.held.expire()
            assert (await dialogue.say("on")).status == 200
        assert front.misses == {"first_turn": 1}
        assert front.hits == 2
