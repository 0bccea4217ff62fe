"""Faults that a test switches on in a simulated engine."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import orjson
import pytest

from disaggpair_bed.simengine import RunningEngine, running_engine
from disaggpair_bed.simengine.faults import KINDS, FaultError, Faults
from disaggpair_bed.simengine.twolegs import TURN_1, Client, until

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


async def test_a_request_is_delayed_before_the_core(client: Client, engine: RunningEngine) -> None:
    engine.faults.add("delay", delay_s=0.05)
    began = time.monotonic()
    assert (await client.post(engine.url, HELLO)).status == 200
    assert time.monotonic() - began >= 0.05


async def test_a_core_dies_as_a_request_arrives(client: Client, engine: RunningEngine) -> None:
    engine.faults.add("crash")
    assert (await client.post(engine.url, HELLO)).status == 500
    await until(lambda: engine.closed)


async def test_a_core_dies_in_mid_stream(client: Client, engine: RunningEngine) -> None:
    engine.faults.add("crash_stream", after=2)
    answer = await client.post(engine.url, {**HELLO, "stream": True})
    assert answer.error is not None
    assert engine.engine.death


async def test_some_requests_fail_the_same_ones_for_a_seed(
    client: Client, engine: RunningEngine
) -> None:
    seen = []
    for _ in range(2):
        engine.faults.clear()
        engine.faults.add("status", count=None, probability=0.5, seed=3)
        seen.append([(await client.post(engine.url, HELLO)).status for _ in range(12)])
    assert seen[0] == seen[1]
    assert set(seen[0]) == {200, 500}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_body_is_no_json(client: Client, engine: RunningEngine, stream: bool) -> None:
    engine.faults.add("malformed_body")
    url = engine.url + client.path
    async with client.session.post(url, json={**HELLO, "stream": stream}) as response:
        assert response.status == 200
        raw = await response.read()
    pieces = raw.split(b"\n\n") if stream else [raw]
    with pytest.raises(orjson.JSONDecodeError):
        orjson.loads(pieces[0].removeprefix(b"data: "))


@pytest.mark.parametrize("stream", [False, True])
async def test_a_body_is_empty(client: Client, engine: RunningEngine, stream: bool) -> None:
    engine.faults.add("empty_body")
    url = engine.url + client.path
    async with client.session.post(url, json={**HELLO, "stream": stream}) as response:
        assert (response.status, await response.read()) == (200, b"")


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_ends_in_an_error_under_200(
    client: Client, engine: RunningEngine, stream: bool
) -> None:
    engine.faults.add("finish_error")
    body = {**HELLO, "stream": stream, "kv_transfer_params": TURN_1}
    answer = await client.post(engine.url, body)
    assert (answer.status, answer.finish_reason, answer.params) == (200, "error", None)


@pytest.mark.parametrize(("kind", "text"), [("truncate_stream", 8), ("omit_end", None)])
async def test_a_stream_ends_without_its_marker(
    client: Client, engine: RunningEngine, kind: str, text: int | None
) -> None:
    engine.faults.add(kind, after=2)
    answer = await client.post(engine.url, {**HELLO, "stream": True})
    assert not answer.done
    assert answer.error is None
    if text is not None:
        assert len(answer.text) == text
        assert answer.finish_reason is None
    else:
        assert answer.finish_reason == "stop"


async def test_the_lines_of_a_stream_are_written_otherwise(
    client: Client, engine: RunningEngine
) -> None:
    body = {**HELLO, "stream": True}
    plain = await client.post(engine.url, body)
    for kind in ("crlf", "comments", "multiline"):
        engine.faults.add(kind)
    async with client.session.post(engine.url + client.path, json=body) as response:
        raw = await response.read()
    assert raw.count(b"\r\n") == raw.count(b"\n")
    events = [event for event in raw.split(b"\r\n\r\n") if event and event[:1] != b":"]
    assert raw.count(b": keep-alive") == len(events)
    payloads = [b"\n".join(line.removeprefix(b"data: ") for line in event.split(b"\r\n"))
             for event in events]  # fmt: skip
    chunks = [orjson.loads(data) for data in payloads[:-1]]
    assert payloads[0].startswith(b"{\n")
    text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)
    assert text == plain.text


async def test_a_stream_is_slow(client: Client, engine: RunningEngine) -> None:
    engine.faults.add("slow_stream", delay_s=0.01)
    began = time.monotonic()
    answer = await client.post(engine.url, {**HELLO, "stream": True})
    assert time.monotonic() - began >= 0.01 * len(answer.chunks)


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


async def test_a_read_fails_or_takes_longer(client: Client) -> None:
    long = {"messages": [{"role": "user", "content": "about the rivers of the north " * 40}]}
    async with running_engine("prefill") as prefill, running_engine("decode") as decode:
        decode.faults.add("slow_read", delay_s=0.05)
        began = time.monotonic()
        assert (await client.turn(prefill.url, decode.url, long)).status == 200
        assert time.monotonic() - began >= 0.05
        decode.faults.add("fail_read")
        other = {"messages": [{"role": "user", "content": "something else " * 80}]}
        assert (await client.turn(prefill.url, decode.url, other)).status == 500
        assert decode.engine.core.stats.failed_transfers == 1


async def test_a_read_hangs_while_health_is_good(client: Client) -> None:
    long = {"messages": [{"role": "user", "content": "about the rivers of the north " * 40}]}
    async with running_engine("prefill") as prefill, running_engine("decode") as decode:
        decode.faults.add("hang_read")
        turn = asyncio.create_task(client.turn(prefill.url, decode.url, long))
        await until(lambda: decode.engine.core.reading)
        async with client.session.get(decode.url + "/health") as response:
            assert response.status == 200
        assert not turn.done()
        decode.faults.clear()
        assert (await turn).status == 200


async def test_a_frozen_engine_does_nothing_but_take_connections(
    client: Client, engine: RunningEngine
) -> None:
    async with client.session.post(engine.url + "/sim/freeze") as response:
        assert response.status == 200
    chat = asyncio.create_task(client.post(engine.url, {**HELLO, "stream": True}))

    async def health() -> int:
        async with client.session.get(engine.url + "/health") as response:
            return response.status

    healthy = asyncio.create_task(health())
    await asyncio.wait([chat, healthy], timeout=0.1)
    assert [chat.done(), healthy.done()] == [False, False]
    async with client.session.post(engine.url + "/sim/thaw") as response:
        assert response.status == 200
    assert ((await chat).done, await healthy) == (True, 200)


async def test_an_engine_that_is_frozen_can_be_ended(client: Client) -> None:
    async with running_engine() as engine:
        engine.faults.freeze()
        asked = asyncio.create_task(client.post(engine.url, HELLO))
        await asyncio.sleep(0)
    with pytest.raises(aiohttp.ClientError):
        await asked
    assert engine.findings == []


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
    with pytest.raises(FaultError, match="route is 'walk', must be one of list"):
        Faults().add("lease_drop", route="walk")
    with pytest.raises(FaultError, match="probability is 0, must be above 0"):
        Faults().add("hang", probability=0)
    with pytest.raises(FaultError, match="size is 0"):
        Faults().add("split_chunks", size=0)


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
