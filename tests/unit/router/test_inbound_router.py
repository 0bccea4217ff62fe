"""The HTTP server with the router behind it: raw clients, bounds, what is counted and logged."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import orjson
import pytest
from aiohttp import web

from disaggpair_bed.fakes.upstream import (
    Recorded,
    ScriptedEngine,
    decoding,
    prefilling,
    scripted_engine,
)
from disaggpair_bed.rawconnection import RawConnection, in_chunks, post, request
from disaggpair_bed.routing import Routed, eventually, routed
from disaggpair_router.inbound import server

CHAT = "/v1/chat/completions"
OFFER = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAEAAEAA")


def body(**fields: Any) -> bytes:
    return orjson.dumps({"messages": [{"role": "user", "content": "a"}], **fields})


@asynccontextmanager
async def fronted(**config: Any) -> AsyncIterator[tuple[Routed, ScriptedEngine, ScriptedEngine]]:
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(decoding()) as decode,
        routed([prefill], [decode], **config) as front,
    ):
        yield front, prefill, decode


@asynccontextmanager
async def connected(
    port: int, *sent: bytes, receive_bytes: int = 0
) -> AsyncIterator[RawConnection]:
    client = await RawConnection.connect(port, receive_bytes)
    try:
        await client.send(*sent)
        yield client
    finally:
        client.cut()
        await client.close()


@pytest.mark.parametrize("form", ["length", "chunks"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_client_that_offers_http_2_is_served(form: str, stream: bool) -> None:
    # Java's client does on its first request of a connection, and sends the body with it.
    raw = post(CHAT, body(stream=stream))
    if form == "chunks":
        raw = in_chunks(CHAT, *[bytes([one]) for one in body(stream=stream)])
    raw = raw.replace(b"Host: a\r\n", "\r\n".join(["Host: a", *OFFER, ""]).encode(), 1)
    async with fronted() as (front, _, decode):
        async with connected(front.router.port, raw, post(CHAT, body())) as client:
            first, second = await client.answer(), await client.answer()
        assert (first.status, second.status) == (200, 200)
        assert b"Hello" in first.body
        assert [one.body["messages"][0]["content"] for one in decode.requests] == ["a", "a"]


@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        (b"POST / HTTP/1.1\r\nAuthorization: Bearer secret\n-key\r\n\r\n", 400, "bad_request"),
        (in_chunks(CHAT, b"secret", last=False) + b"secret\r\n", 400, "bad_request"),
        (request("/", "X: " + "secret" * 20_000), 431, None),
    ],
    ids=["head", "body", "too large"],
)
async def test_a_malformed_request_has_an_openai_error_and_reaches_no_log(
    raw: bytes, status: int, code: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    async with fronted() as (front, *_), connected(front.router.port, raw) as client:
        got = await client.answer()
        error = orjson.loads(got.body)["error"]
        assert got.status == status
        assert error["request_id"] == got.headers["x-request-id"]
        assert error["message"]
        assert code is None or error["type"] == "invalid_request_error"
        assert await client.is_closed()
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("http://router:8000/healthz", 200),
        ("/healthz?verbose", 200),
        ("/%68ealthz", 404),
        ("/healthz/", 404),
        ("http://router/healthz/../metrics", 404),
        ("//healthz", 404),
    ],
)
async def test_a_route_is_found_by_its_exact_path(target: str, status: int) -> None:
    async with (
        fronted() as (front, *_),
        connected(front.router.port, request(target)) as client,
    ):
        assert (await client.answer()).status == status


@pytest.mark.parametrize(
    ("bound", "fields"),
    [("turns", {"max_turns": 1}), ("bytes", {"max_request_bytes": 1024, "max_body_bytes": 1024})],
)
async def test_h95_too_much_to_do_is_refused_and_health_is_told(
    bound: str, fields: dict[str, int]
) -> None:
    gate = asyncio.Event()

    async def waits(recorded: Recorded) -> web.StreamResponse:
        await gate.wait()
        return await decoding()(recorded)

    async with fronted(limits=fields) as (front, _, decode):
        decode.script = waits
        raw, port = post(CHAT, body(user="x" * 600)), front.router.port
        async with connected(port, raw) as first, connected(port) as second:
            await eventually(lambda: decode.requests)
            await second.send(raw)
            got = await second.answer()
            assert got.status == 503
            assert int(got.headers["retry-after"]) >= 1
            assert orjson.loads(got.body)["error"]["code"] == "overloaded"
            assert front.count("refusals_total", reason="overloaded") == 1
            for path in ("/healthz", "/readyz"):
                assert (await front.get(path)).status == 200
            gate.set()
            assert (await first.answer()).status == 200
            await first.send(raw)
            assert (await first.answer()).status == 200


async def test_h95_turns_that_come_at_once_are_bounded_too() -> None:
    async with fronted(limits={"max_turns": 3}) as (front, *_):
        # All heads are here before any turn has begun.
        replies = await asyncio.gather(*[front.chat("a") for _ in range(40)])
        statuses = [one.status for one in replies]
        assert statuses.count(200) >= 3
        assert statuses.count(503) == 40 - statuses.count(200)
        assert front.count("refusals_total", reason="overloaded") == statuses.count(503)


async def test_h96_a_client_that_takes_nothing_ends_its_turn_as_one_that_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "_TICK_S", 0.01)

    async def torrent(recorded: Recorded) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(recorded.http)
        while True:
            await response.write(b'data: {"choices": []}\n\n' * 1_000)

    async with fronted(timeouts={"stalled_client_s": 10}) as (front, _, decode):
        decode.script = torrent
        raw, port = post(CHAT, body(stream=True)), front.router.port
        async with connected(port, raw, receive_bytes=4096):
            await eventually(lambda: decode.requests)
            await eventually(lambda: decode.lost_connections == 1)
            await eventually(lambda: front.count("client_disconnects_total", stage="stream") == 1)
        assert front.router.parts.running.count == 0


@pytest.mark.parametrize("ends_in", [b"data: [DONE]\n\n", b'data: {"error": {"code": 500}}\n\n'])
async def test_a_turn_runs_until_its_client_has_what_d_said(ends_in: bytes) -> None:
    said = asyncio.Event()
    large = b'data: {"choices": [], "text": "%b"}\n\n' % (b"x" * 2**24)

    async def answers(recorded: Recorded) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(recorded.http)
        await response.write(large + ends_in)
        said.set()
        return response

    async with fronted(limits={"max_answer_bytes": 2**25}) as (front, _, decode):
        decode.script = answers
        raw, running = post(CHAT, body(stream=True)), front.router.parts.running
        async with connected(front.router.port, raw, receive_bytes=2**16) as client:
            await said.wait()
            endpoints = front.router.parts.endpoints
            await eventually(lambda: not any(endpoints.in_flight(one.name) for one in endpoints))
            assert running.count == 1
            client.read_on()
            got = await client.answer()
        assert got.body.startswith(large)
        assert got.body.endswith(b"\n\n")
        await eventually(lambda: running.count == 0)


async def test_the_metrics_port_answers_what_it_has_and_nothing_else() -> None:
    with ExitStack() as stack:
        free = stack.enter_context(socket.socket())
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    async with fronted(metrics_port=port), connected(port) as client:
        await client.send(request("/metrics"))
        got = await client.answer()
        assert got.status == 200
        assert b"disaggpair_router_turns_total" in got.body
        await client.send(request("/metrics", method="HEAD"), request("/none"))
        head = await client.answer(method="HEAD")
        assert (head.status, int(head.headers["content-length"]) > 0) == (200, True)
        assert (await client.answer()).status == 404
        await client.send(post("/metrics", b"a"), request("/debug/conversations"))
        assert [(await client.answer()).status for _ in range(2)] == [404, 404]
        await client.send(request("/metrics", body=b"x" * 2_000))
        assert (await client.answer()).status == 413


async def test_the_debug_port_answers_what_it_has_and_nothing_else() -> None:
    async with fronted(debug_port=0) as (front, *_):
        port = front.router.debug_port
        assert port
        async with connected(port, request("/debug/conversations?conversation=a")) as client:
            assert orjson.loads((await client.answer()).body)["conversations"] == []
            await client.send(request("/metrics"), post("/debug/conversations", b""))
            assert [(await client.answer()).status for _ in range(2)] == [404, 404]
