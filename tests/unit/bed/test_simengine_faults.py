"""Faults that a test switches on in a simulated engine."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from disaggpair_bed.simengine import RunningEngine, running_engine
from disaggpair_bed.simengine.faults import KINDS, FaultError, Faults
from disaggpair_bed.simengine.twolegs import TURN_1, Client

HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}]}


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with aiohttp.ClientSession() as session:
        yield Client(session)


@pytest.fixture
async def engine() -> AsyncIterator[RunningEngine]:
    async with running_engine() as engine:
        yield engine


async def test_a_status_is_answered_so_many_times(client: Client, engine: RunningEngine) -> None:
    engine.faults.add("status", status=503, count=2, retry_after=7)
    async with client.session.post(engine.url + client.path, json=HELLO) as response:
        assert response.status == 503
        assert response.headers["Retry-After"] == "7"
    assert (await client.post(engine.url, HELLO)).status == 503
    assert (await client.post(engine.url, HELLO)).status == 200


async def test_a_hanging_request_never_reaches_the_core(
    client: Client, engine: RunningEngine
) -> None:
    engine.faults.add("hang")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await client.post(engine.url, HELLO)
    assert engine.engine.core.stats.generation_tokens == 0
    assert (await client.post(engine.url, HELLO)).status == 200


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ["reset", "drop_after_read"])
async def test_a_connection_is_dropped(
    client: Client, engine: RunningEngine, kind: str, stream: bool
) -> None:
    engine.faults.add(kind)
    with pytest.raises(aiohttp.ClientError):
        await client.post(engine.url, {**HELLO, "stream": stream})
    ran = engine.engine.core.stats.generation_tokens > 0
    assert ran == (kind == "drop_after_read")


@pytest.mark.parametrize("stream", [False, True])
async def test_params_are_withheld_although_blocks_are_pinned(
    client: Client, engine: RunningEngine, stream: bool
) -> None:
    engine.faults.add("null_params")
    body = {**HELLO, "stream": stream, "kv_transfer_params": TURN_1}
    assert (await client.post(engine.url, body)).params is None
    assert len(engine.engine.core.connector.leases) == 1


async def test_a_stream_breaks_off_with_an_error_event(
    client: Client, engine: RunningEngine
) -> None:
    engine.faults.add("stream_error", after=3)
    answer = await client.post(engine.url, {**HELLO, "stream": True})
    assert answer.status == 200
    assert answer.error is not None
    assert answer.finish_reason is None
    assert len(answer.text) == 12
    assert answer.done


async def test_a_stream_is_cut(client: Client, engine: RunningEngine) -> None:
    engine.faults.add("cut_stream", after=3)
    with pytest.raises(aiohttp.ClientPayloadError):
        await client.post(engine.url, {**HELLO, "stream": True})


@pytest.mark.parametrize("stream", [False, True])
async def test_split_chunks_change_no_byte(
    client: Client, engine: RunningEngine, stream: bool
) -> None:
    body = {**HELLO, "stream": stream, "kv_transfer_params": TURN_1}
    plain = await client.post(engine.url, body)
    engine.faults.add("split_chunks", size=3, count=None)
    split = await client.post(engine.url, body)
    assert (split.text, split.done) == (plain.text, plain.done)
    assert split.params is not None


async def test_a_slow_first_byte(client: Client, engine: RunningEngine) -> None:
    engine.faults.add("slow_first_byte", delay_s=0.2)
    began = time.monotonic()
    await client.post(engine.url, {**HELLO, "stream": True})
    assert time.monotonic() - began >= 0.2


async def test_health_goes_bad_while_requests_are_served(
    client: Client, engine: RunningEngine
) -> None:
    engine.faults.add("unhealthy", count=None)
    async with client.session.get(engine.url + "/health") as response:
        assert response.status == 503
    assert (await client.post(engine.url, HELLO)).status == 200


async def test_faults_are_switched_over_http(client: Client, engine: RunningEngine) -> None:
    url = engine.url + "/sim/fault"
    async with client.session.post(url, json={"kind": "status", "count": None}) as response:
        assert (await response.json())["active"][0]["kind"] == "status"
    assert (await client.post(engine.url, HELLO)).status == 500
    async with client.session.get(url) as response:
        assert set((await response.json())["kinds"]) == set(KINDS)
    async with client.session.delete(url) as response:
        assert (await response.json())["active"] == []
    assert (await client.post(engine.url, HELLO)).status == 200


@pytest.mark.parametrize(
    "body", [{}, [], {"kind": "typo"}, {"kind": "status", "cuont": 1}, {"kind": "hang", "count": 0}]
)
async def test_a_misspelt_fault_is_refused(
    client: Client, engine: RunningEngine, body: Any
) -> None:
    async with client.session.post(engine.url + "/sim/fault", json=body) as response:
        assert response.status == 400
        assert "no such fault" in (await response.json())["error"]


def test_a_fault_names_what_is_allowed() -> None:
    with pytest.raises(FaultError, match="kind is 'typo', must be one of status, hang"):
        Faults().add("typo")
    with pytest.raises(FaultError, match="count is 0"):
        Faults().add("hang", count=0)


async def test_the_oracle_and_the_state_are_read_over_http(
    client: Client, engine: RunningEngine
) -> None:
    answer = await client.post(engine.url, {**HELLO, "kv_transfer_params": TURN_1})
    async with client.session.get(engine.url + "/sim/oracle") as response:
        report = await response.json()
    assert report["handles"]["live"] == 1
    assert report["violations"] == []
    assert answer.params is not None
    assert report["live"][0]["request_id"] == answer.params["remote_request_id"]
    async with client.session.get(engine.url + "/sim/state") as response:
        state = await response.json()
    assert state["leases"] == 1
    assert state["engine_id"] == answer.params["remote_engine_id"]
    async with client.session.post(engine.url + "/sim/reset_cache") as response:
        assert response.status == 200
    async with client.session.post(engine.url + "/sim/crash") as response:
        assert response.status == 200
    assert engine.engine.death


async def test_requests_are_recorded_as_they_arrived(client: Client, engine: RunningEngine) -> None:
    await client.post(engine.url, {**HELLO, "conversation_id": "c"}, **{"X-Session-ID": "s"})
    (received,) = engine.recorder.received
    assert received.body == {**HELLO, "conversation_id": "c"}
    async with client.session.get(engine.url + "/sim/requests") as response:
        (reported,) = await response.json()
    assert reported["path"] == "/v1/chat/completions"
    assert reported["headers"]["x-session-id"] == "s"
    assert reported["body"] == received.body
