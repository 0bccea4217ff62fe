"""Large requests are read in another process, and nobody can tell by the result."""

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
from disaggpair_router.conversation import Keys
from disaggpair_router.door import Caller
from disaggpair_router.errors import BadRequest
from disaggpair_router.largebodies import LARGE_BYTES, Requests
from disaggpair_router.request import RequestReader, TurnRequest

MESSAGES = [{"role": "user", "content": "é\n" * 500}] * (LARGE_BYTES // 1000)
BODY = {"model": "m", "messages": MESSAGES, "max_tokens": 5, "kv_transfer_params": {"a": 1}}
HEADERS = CIMultiDictProxy(CIMultiDict({"X-Conversation-Id": "c"}))


@pytest.fixture
async def requests() -> AsyncIterator[Requests]:
    one = Requests(RequestReader(["X-Conversation-Id"], keys=Keys(b"k" * 32), bidirectional=True))
    yield one
    one.close()


async def read(requests: Requests, body: Any) -> TurnRequest:
    raw = body if isinstance(body, bytes) else orjson.dumps(body)
    return await requests.read("chat", raw, HEADERS, "r-1", Caller(owner=b"o"))


def comparable(request: TurnRequest) -> dict[str, Any]:
    fields = {name: getattr(request, name) for name in TurnRequest.__slots__}
    assert request.history is not None
    fields["history"] = request.history.prompt()
    fields["body"] = orjson.loads(orjson.dumps(request.body))
    return fields


async def test_a_large_request_reads_as_a_small_one_would(requests: Requests) -> None:
    raw = orjson.dumps(BODY)
    assert len(raw) > LARGE_BYTES
    small = requests.reader.read("chat", raw, HEADERS, "r-1", Caller(owner=b"o"))
    large = await read(requests, BODY)
    assert requests._pool is not None
    assert comparable(large) == comparable(small)
    assert "kv_transfer_params" not in large.body


async def test_what_is_wrong_with_a_large_request_is_said(requests: Requests) -> None:
    with pytest.raises(BadRequest, match="stream must be true or false"):
        await read(requests, {**BODY, "stream": "yes"})
    with pytest.raises(BadRequest, match="not valid JSON"):
        await read(requests, orjson.dumps(BODY)[:-1])


async def test_small_requests_start_no_process(requests: Requests) -> None:
    await read(requests, {"messages": [{"role": "user", "content": "a"}]})
    assert requests._pool is None


async def test_a_reader_that_was_killed_costs_no_request(
    requests: Requests, caplog: pytest.LogCaptureFixture
) -> None:
    await read(requests, BODY)
    assert requests._pool is not None
    (reader,) = requests._pool._processes
    os.kill(reader, signal.SIGKILL)
    with caplog.at_level(logging.WARNING):
        await eventually(lambda: _is_noticed(requests))
        assert (await read(requests, BODY)).body["model"] == "m"
    assert "read in this process" in caplog.text
    await read(requests, BODY)
    assert requests._pool is not None


def _is_noticed(requests: Requests) -> bool:
    pool = requests._pool
    return pool is not None and bool(pool._broken)


async def test_a_conversation_goes_on_from_large_to_larger() -> None:
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(decoding()) as decode,
        routed([prefill], [decode]) as front,
    ):
        talk = Dialogue(front, {"conversation_id": "c-1", "model": "m"})
        for text in ("x" * LARGE_BYTES, "and more"):
            assert (await talk.say(text)).status == 200
        assert front.hits == 1
        for engine in (prefill, decode):
            last = engine.requests[-1].body
            assert last["messages"] == talk.messages[:-1]
            assert "conversation_id" not in last
