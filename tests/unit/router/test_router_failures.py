"""Requests that end before a turn: each is counted once, and its id is found in the log."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from disaggpair_bed.fakes.upstream import (
    ScriptedEngine,
    decoding,
    prefilling,
    scripted_engine,
)
from disaggpair_bed.routing import Routed, eventually, routed
from disaggpair_bed.simengine import running_engine
from disaggpair_router.environment import Environment
from disaggpair_router.errors import BadRequest
from disaggpair_router.failures import Asked, Failures
from disaggpair_router.metrics import Metrics
from disaggpair_router.turnlog import LineFormatter, RequestRecord

CHAT = "/v1/chat/completions"


@pytest.fixture
async def front(caplog: pytest.LogCaptureFixture) -> AsyncIterator[Routed]:
    caplog.set_level("INFO")
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(decoding()) as decode,
        routed([prefill], [decode], limits={"max_body_bytes": 4096}) as one,
    ):
        yield one


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """What was logged of requests and turns, as JSON."""
    return [
        json.loads(LineFormatter("json").format(one))
        for one in caplog.records
        if one.name == "disaggpair_router.turn"
    ]


def errors(front: Routed) -> dict[str, float]:
    (metric,) = front.router.parts.metrics.errors.collect()
    return {one.labels["kind"]: one.value for one in metric.samples}


@pytest.mark.parametrize(
    ("path", "body", "headers", "status", "code", "api"),
    [
        (CHAT, b"{", {}, 400, "bad_request", "chat"),
        (CHAT, b"{}", {"X-Conversation-Id": "x" * 257}, 400, "bad_request", "chat"),
        (CHAT, b" " * 5_000, {}, 413, "body_too_large", "chat"),
        (CHAT, b"{}", {"Content-Encoding": "gzip"}, 415, "unsupported_content_encoding", "chat"),
        ("/v1/messages", b"{", {}, 400, "bad_request", "messages"),
        ("/v1/embeddings", b"{}", {}, 404, "unknown_route", None),
    ],
)
async def test_a_refused_request_is_counted_once_and_its_id_is_in_the_log(
    front: Routed,
    caplog: pytest.LogCaptureFixture,
    path: str,
    body: bytes,
    headers: dict[str, str],
    status: int,
    code: str,
    api: str | None,
) -> None:
    reply = await front.post(path, body, headers=headers)
    assert reply.status == status
    assert errors(front) == {code: 1}
    (line,) = lines(caplog)
    assert line.pop("time")
    assert line == {
        "level": "info",
        "message": "a request failed before a turn",
        "request": reply.headers["X-Request-Id"],
        "status": status,
        "error": code,
        **({"api": api} if api else {}),
    }


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"no http\r\n\r\n", b"bad_request"),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 300 + b"\r\n", b"head_too_large"),
    ],
)
async def test_bytes_that_are_no_request_are_counted_and_logged(
    front: Routed, caplog: pytest.LogCaptureFixture, raw: bytes, code: bytes
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", front.router.port)
    writer.write(raw)
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    assert code in answer
    assert errors(front) == {code.decode(): 1}
    (line,) = lines(caplog)
    assert line["request"].encode() in answer


async def test_an_error_of_a_turn_is_counted_and_logged_by_the_turn_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    async with routed(["http://127.0.0.1:1"], ["http://127.0.0.1:2"], wait_ready=False) as front:
        reply = await front.chat("a")
        assert errors(front) == {"no_endpoint": 1}
        (line,) = lines(caplog)
        assert line["request"] == reply.headers["X-Request-Id"]
        assert line["way"] == "NONE"


async def test_what_succeeds_without_a_turn_has_no_line_and_an_id(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")

    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(decoding()) as decode,
        routed([prefill], [decode]) as front,
    ):
        for path in ("/healthz", "/readyz", "/v1/models"):
            reply = await front.get(path, headers={"X-Request-Id": "mine"})
            assert (path, reply.headers["X-Request-Id"]) == (path, "mine")
        assert (await front.get("/healthz")).status == 200
        assert errors(front) == {}
        assert lines(caplog) == []


async def test_a_caller_that_is_refused_is_logged_without_its_key(
    caplog: pytest.LogCaptureFixture, tmp_path: Any
) -> None:
    caplog.set_level("INFO")
    async with routed(
        ["http://127.0.0.1:1"],
        ["http://127.0.0.1:2"],
        wait_ready=False,
        environment=Environment(),
        tenants={"directory": str(tmp_path)},
    ) as front:
        reply = await front.chat("a", headers={"Authorization": "Bearer secret-key"})
        assert reply.status == 401
        assert errors(front) == {"invalid_api_key": 1}
        (line,) = lines(caplog)
        assert "secret" not in json.dumps(line)


async def test_a_turn_that_is_cut_when_the_router_ends_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")

    async def silent(_: Any) -> Any:
        await asyncio.Event().wait()

    decode: ScriptedEngine
    async with scripted_engine(prefilling()) as prefill, scripted_engine(silent) as decode:
        async with routed([prefill], [decode], timeouts={"drain_s": 0.01}) as front:
            turn = asyncio.create_task(front.chat("a"))
            await eventually(lambda: decode.requests)
            await front.router.parts.running.drain(0.0)
            assert (await turn).status == 503
            assert errors(front) == {"no_endpoint": 1}
        (line,) = lines(caplog)
        assert (line["way"], line["status"], line["error"]) == ("FULL", 503, "no_endpoint")


async def test_a_body_that_no_engine_can_read_is_no_kind_of_miss() -> None:
    async with (
        running_engine("prefill") as prefill,
        running_engine("decode") as decode,
        routed([prefill], [decode]) as front,
    ):
        assert (await front.post(CHAT, {"model": "toy"})).status == 400
        assert front.misses == {}
        assert errors(front) == {"refused_by_engine": 1}


# -- how many lines ----------------------------------------------------------------------------


def test_a_flood_gets_fifty_lines_a_second_and_is_counted_whole(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    metrics = Metrics()
    now = [0.0]
    failures = Failures(metrics, lambda: now[0])
    for _ in range(80):
        failures.answer(BadRequest("x"), Asked.of(None))
    assert len(lines(caplog)) == 50
    now[0] += 0.021
    failures.answer(BadRequest("x"), Asked.of(None))
    assert len(lines(caplog)) == 51
    said = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert said == ["30 requests that failed before a turn have no line"]
    assert (
        metrics.registry.get_sample_value("disaggpair_router_errors_total", {"kind": "bad_request"})
        == 81
    )


def test_a_line_for_people_begins_with_what_it_is_of() -> None:
    record = RequestRecord("r", "chat", "team-a", 413, "body_too_large")
    log = logging.makeLogRecord({"turn": record, "levelname": "INFO", "created": 0})
    expected = " request request=r tenant=team-a api=chat status=413 error=body_too_large"
    assert LineFormatter("human").format(log).endswith(expected)
    assert LineFormatter("human", 3).format(log).endswith(f"{expected} worker=3")
