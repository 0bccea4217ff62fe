"""What the engines are sent, and what reaches the client of it."""

import asyncio

import aiohttp
import orjson
import pytest
from aiohttp import web

from disaggpair_bed.fakes.upstream import (
    Recorded,
    chat_events,
    decode_handle,
    decoding,
    prefill_params,
    prefilling,
    scripted_engine,
    streams,
)
from disaggpair_bed.routing import routed
from disaggpair_router.kv import FIRST_TURN

ID = {"conversation_id": "c-1"}


async def test_h87_every_leg_has_its_own_request_id() -> None:
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(decoding()) as decode,
        routed([prefill], [decode]) as front,
    ):
        headers = {"X-Request-Id": "mine", "Authorization": "Bearer k", "X-Other": "1"}
        replies = [await front.chat("hello", headers=headers) for _ in range(2)]
        requests = [*prefill.requests, *decode.requests]
        ids = {one.headers["X-Request-Id"] for one in requests}
        assert len(ids) == 4
        assert "mine" not in ids
        assert {reply.headers["X-Request-Id"] for reply in replies} == {"mine"}
        assert all(one.headers["Authorization"] == "Bearer k" for one in requests)
        assert not any("X-Other" in one.headers for one in requests)


async def test_decode_gets_the_clients_body_and_prefills_parameters() -> None:
    body = {"stop": ["x"], "unknown": {"a": [1, None]}, "max_tokens": 7, "stream": False}
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(decoding()) as decode,
        routed([prefill], [decode]) as front,
    ):
        await front.chat("hello", **body, **ID)
        sent = decode.requests[0].body
        assert sent.pop("kv_transfer_params") == prefill_params()
        messages = [{"role": "user", "content": "hello"}]
        assert sent == {"model": "toy", "messages": messages, **body}
        assert prefill.requests[0].params == FIRST_TURN
        assert prefill.requests[0].body["max_tokens"] == 1


async def test_h56_the_clients_stream_is_decodes_less_the_parameters() -> None:
    events = chat_events(decode_handle())
    clean = events.replace(b',"kv_transfer_params":null', b"").replace(
        b',"kv_transfer_params":' + orjson.dumps(decode_handle()), b""
    )
    for size in (1, 7, len(events)):
        pieces = [events[start : start + size] for start in range(0, len(events), size)]
        async with (
            scripted_engine(prefilling()) as prefill,
            scripted_engine(streams(*pieces)) as decode,
            routed([prefill], [decode]) as front,
        ):
            reply = await front.chat("hello", stream=True, **ID)
            assert reply.raw == clean
            assert front.handles == 1


async def test_chunks_reach_the_client_as_they_come() -> None:
    go_on = asyncio.Event()

    async def slow(recorded: Recorded) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(recorded.http)
        await response.write(b'data: {"choices": [], "n": 1}\n\n')
        await go_on.wait()
        await response.write(chat_events(decode_handle()))
        return response

    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(slow) as decode,
        routed([prefill], [decode]) as front,
    ):
        body = {"messages": [], "stream": True}
        async with front.http.post("/v1/chat/completions", json=body) as response:
            assert await response.content.readany() == b'data: {"choices": [], "n": 1}\n\n'
            go_on.set()
            assert (await response.read()).endswith(b"data: [DONE]\n\n")


async def test_h91_a_large_body_goes_through_both_legs() -> None:
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(decoding()) as decode,
        routed([prefill], [decode]) as front,
    ):
        assert (await front.chat("x" * 3_000_000)).status == 200
        assert len(decode.requests[0].body["messages"][0]["content"]) == 3_000_000


async def test_a_router_without_any_engine_says_so() -> None:
    async with routed(["http://127.0.0.1:9"], ["http://127.0.0.1:10"], wait_ready=False) as front:
        assert (await front.chat("hello")).status == 503
        assert (await front.chat("hello", n=2)).status == 503
        assert (await front.get("/v1/models")).status == 503
        with pytest.raises(aiohttp.ClientResponseError):
            (await front.http.get("/readyz")).raise_for_status()
