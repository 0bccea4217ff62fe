"""Requests that take long are read in another process, and nobody can tell by the result."""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from disaggpair_bed.fakes.upstream import decoding, prefilling, scripted_engine
from disaggpair_bed.routing import Dialogue, eventually, routed
from disaggpair_router import largebodies
from disaggpair_router.conversation import Keys
from disaggpair_router.door import Caller
from disaggpair_router.errors import BadRequest, NoEndpoint, RouterError
from disaggpair_router.kv import Api
from disaggpair_router.largebodies import Requests
from disaggpair_router.readingprocess import ReadingProcess
from disaggpair_router.request import RequestReader, TurnRequest
from disaggpair_router.structure import AT_ONCE_BYTES, MOST_FIELDS

MESSAGES = [{"role": "user", "content": "é\n" * 500}] * (AT_ONCE_BYTES // 1000)
BODY = {"model": "m", "messages": MESSAGES, "max_tokens": 5, "kv_transfer_params": {"a": 1}}
HEADERS = CIMultiDictProxy(CIMultiDict({"X-Conversation-Id": "c"}))
READER = RequestReader(
    ["X-Conversation-Id"], keys=Keys(b"k" * 32), bidirectional=True, verified_reads=True
)


@pytest.fixture
async def requests() -> AsyncIterator[Requests]:
    one = Requests(READER)
    yield one
    one.close()


async def read(requests: Requests, body: Any, api: Api = "chat") -> TurnRequest:
    raw = body if isinstance(body, bytes) else orjson.dumps(body)
    return await requests.read(api, raw, HEADERS, "r-1", Caller(owner=b"o"))


def comparable(request: TurnRequest) -> dict[str, Any]:
    fields = {name: getattr(request, name) for name in TurnRequest.__slots__}
    assert request.history is not None
    history = fields.pop("history")
    fields["history"] = [history.prompt(), list(history.digests()), history.size(0)]
    fields["history"] += [history.beginning(1), history.size_after(1)]
    fields["body"] = orjson.loads(orjson.dumps(request.body))
    return fields


CALL = {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}
BLOCKS: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "a"}]}]
SHAPES: dict[str, tuple[Api, dict[str, Any]]] = {
    "many bytes": ("chat", BODY),
    "many messages": ("chat", {"messages": [{"role": "user", "content": "a"}] * 3_000}),
    "many items": ("responses", {"input": [CALL] * 3_000}),
    "many blocks": ("messages", {"messages": BLOCKS * 3_000, "stop_sequences": ["a"]}),
    "many ids": ("completions", {"prompt": list(range(1, 30_000)), "stop": []}),
    "one text": ("completions", {"prompt": "a" * AT_ONCE_BYTES, "stop": ["a"]}),
    "many lists": ("chat", {"messages": BLOCKS, "extra_body": [[]] * 3_000}),
    "many fields": ("chat", {"messages": MESSAGES, **{f"m{n}": [n] * 500 for n in range(200)}}),
    "long name": ("chat", {**BODY, "model": "m" * 5_000}),
}


@pytest.mark.parametrize(("api", "body"), SHAPES.values(), ids=SHAPES)
async def test_what_the_other_process_reads_is_what_the_loop_would_have(
    api: Api, body: dict[str, Any], requests: Requests
) -> None:
    small = READER.read(api, orjson.dumps(body), HEADERS, "r-1", Caller(owner=b"o"))
    large = await read(requests, body, api)
    assert requests.pid is not None
    assert comparable(large) == comparable(small)
    assert "kv_transfer_params" not in large.body
    assert large.has_stop == small.has_stop


async def test_what_is_taken_over_from_the_other_process_is_few_pieces(requests: Requests) -> None:
    body = {f"m{n}": [n] * 500 for n in range(200)}
    large = await read(requests, {**BODY, **body})
    kinds = {name: type(value) for name, value in large.body.items()}
    assert kinds.pop("model") is str
    assert kinds.pop("max_tokens") is int
    assert set(kinds.values()) == {orjson.Fragment}


async def test_what_is_wrong_with_a_large_request_is_said(requests: Requests) -> None:
    with pytest.raises(BadRequest, match="stream must be true or false"):
        await read(requests, {**BODY, "stream": "yes"})
    with pytest.raises(BadRequest, match="not valid JSON"):
        await read(requests, orjson.dumps(BODY)[:-1])
    with pytest.raises(BadRequest, match=f"more than {MOST_FIELDS} fields"):
        await read(requests, {**BODY, **{f"m{n}": 0 for n in range(300)}})
    with pytest.raises(BadRequest, match="more than 20,000 messages"):
        await read(requests, {"messages": [{}] * 20_001})
    with pytest.raises(BadRequest, match="500,000 objects and lists"):
        await read(requests, {"extra_body": [[]] * 500_000})


@pytest.mark.parametrize("depth", [300, 600, 1_000, 2_000])
@pytest.mark.parametrize("size", [0, AT_ONCE_BYTES])
async def test_a_body_that_is_nested_too_deeply_is_refused_wherever_it_is_read(
    depth: int, size: int, requests: Requests
) -> None:
    nested = b"[" * depth + b"]" * depth
    raw = b'{"prompt": "%s", "extra_body": %s}' % (b"a" * size, nested)
    with pytest.raises(BadRequest, match=r"nested too deeply|not valid JSON"):
        await read(requests, raw, "completions")
    if depth > 500 or size:
        with pytest.raises(BadRequest, match=r"nested too deeply|not valid JSON"):
            await requests.body(raw)


async def test_small_requests_start_no_process(requests: Requests) -> None:
    await read(requests, {"messages": [{"role": "user", "content": "a"}]})
    assert await requests.body(b'{"prompt": "a", "kv_transfer_params": 1}') == {"prompt": "a"}
    assert requests.pid is None


async def test_a_large_body_that_is_no_turns_is_read_elsewhere_too(requests: Requests) -> None:
    body = await requests.body(orjson.dumps(BODY))
    assert requests.pid is not None
    without = {name: value for name, value in BODY.items() if name != "kv_transfer_params"}
    assert orjson.loads(orjson.dumps(body)) == without


async def test_a_reader_that_was_killed_costs_no_request(requests: Requests) -> None:
    await read(requests, BODY)
    first = requests.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    both = await asyncio.gather(read(requests, BODY), read(requests, BODY))
    assert [request.body["model"] for request in both] == ["m", "m"]
    assert requests.pid not in (None, first)


async def test_without_a_process_large_requests_are_read_here(
    requests: Requests, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> object:
        raise OSError("no processes left")

    monkeypatch.setattr(ReadingProcess, "_start", fail)
    with caplog.at_level(logging.WARNING):
        assert (await read(requests, BODY)).body["model"] == "m"
        assert (await requests.body(orjson.dumps(BODY)))["model"] == "m"
    assert "read in this process: no processes left" in caplog.text


def _stuck(_: object) -> Any:
    def answer(question: object, raw: bytes) -> object:
        if question is None:
            return {"read": True}
        signal.pause()
        return None

    return answer


def _dying(_: object) -> Any:
    return lambda question, raw: os._exit(1)


def _never(_: object) -> Any:
    os._exit(1)


async def test_a_body_that_takes_too_long_is_refused_and_others_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(largebodies, "_answering", _stuck)
    requests = Requests(READER, limit_s=1.0)
    raw = orjson.dumps(BODY)
    late, other = await asyncio.gather(
        read(requests, BODY), requests.body(raw), return_exceptions=True
    )
    requests.close()
    assert str(late) == "The body takes too long to read."
    assert isinstance(late, BadRequest)
    assert other == {"read": True}


async def test_a_body_that_ends_its_reader_is_not_read_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(largebodies, "_answering", _dying)
    requests = Requests(READER)
    with pytest.raises(RouterError, match="failed to read the body"):
        await read(requests, BODY)
    requests.close()


async def test_a_process_that_ends_at_its_start_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(largebodies, "_answering", _never)
    requests = Requests(READER)
    assert (await read(requests, BODY)).body["model"] == "m"
    requests.close()


async def test_who_waits_while_the_router_ends_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(largebodies, "_answering", _stuck)
    requests = Requests(READER, limit_s=60.0)
    waiting = [asyncio.ensure_future(read(requests, BODY)) for _ in range(2)]
    await eventually(lambda: requests.pid is not None)
    requests.close()
    for one in waiting:
        with pytest.raises(NoEndpoint, match="shutting down"):
            await one
    assert requests.pid is None


async def test_a_conversation_goes_on_from_large_to_larger() -> None:
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(decoding()) as decode,
        routed([prefill], [decode]) as front,
    ):
        talk = Dialogue(front, {"conversation_id": "c-1", "model": "m"})
        for text in ("x" * AT_ONCE_BYTES, "and more"):
            assert (await talk.say(text)).status == 200
        assert front.hits == 1
        for engine in (prefill, decode):
            last = engine.requests[-1].body
            assert last["messages"] == talk.messages[:-1]
            assert "conversation_id" not in last
