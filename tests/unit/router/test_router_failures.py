"""What a turn becomes when an engine does not do its part."""

import asyncio
import logging
from dataclasses import replace
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web

from disaggpair_bed.fakes.upstream import (
    Recorded,
    ScriptedEngine,
    answers,
    chat_events,
    completion,
    decode_handle,
    decoding,
    hangs,
    in_turn,
    prefill_params,
    prefilling,
    resets,
    scripted_engine,
    streams,
)
from disaggpair_bed.routing import Dialogue, Routed, eventually, routed
from disaggpair_bed.simengine import running_engine
from disaggpair_router.kv import FIRST_TURN
from disaggpair_router.pick import Endpoint

ID = {"conversation_id": "c-1"}
BOTH = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


def error(status: int, message: str = "boom at http://10.0.0.4:8000/x", **headers: str) -> Any:
    body = {"error": {"message": message, "type": "T", "param": None, "code": status}}
    return answers(body, status=status, headers=headers)


async def with_handle(front: Routed) -> Dialogue:
    """A conversation after its first turn, whose handle waits."""
    dialogue = Dialogue(front, dict(ID))
    assert (await dialogue.say("one")).status == 200
    assert front.handles == 1
    return dialogue


def params_of(engine: ScriptedEngine) -> list[Any]:
    """The engine ids in the parameters that an engine was sent, None for a first turn."""
    return [(one.params or {}).get("remote_engine_id", "absent") for one in engine.requests]


# P with a handle


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(error(500), id="h06-load-failure"),
        pytest.param(resets, id="h02-dropped-socket"),
        pytest.param(answers("no object"), id="no-object"),
        pytest.param(error(503), id="busy"),
    ],
)
async def test_a_failed_read_is_repeated_without_the_handle(bad: Any) -> None:
    prefill_script = in_turn(prefilling(), bad, prefilling())
    async with (
        scripted_engine(prefill_script) as prefill,
        scripted_engine(decoding()) as decode,
        routed([prefill], [decode]) as front,
    ):
        dialogue = await with_handle(front)
        assert (await dialogue.say("two")).status == 200
        assert params_of(prefill) == [None, "D-engine", None]
        assert front.misses == {"first_turn": 1, "refused": 1}
        assert front.count("retries_total", leg="prefill") == 1


async def test_h44_a_prefill_that_parks_handles_is_sent_no_more_for_a_time() -> None:
    async def parks(recorded: Recorded) -> web.StreamResponse:
        read = (recorded.params or {}).get("remote_engine_id")
        return await (hangs if read else prefilling())(recorded)

    async with (
        scripted_engine(parks) as prefill,
        scripted_engine(decoding()) as decode,
        routed([prefill], [decode], timeouts={"prefill_s": 1}, kv={"releases_per_s": 0}) as front,
    ):
        dialogue = await with_handle(front)
        for text in ("two", "three"):
            assert (await dialogue.say(text)).status == 200
        assert front.misses == {"first_turn": 1, "refused": 1, "paused": 1}
        front.clock.offset += 61
        assert (await dialogue.say("four")).status == 200
        assert front.misses["refused"] == 2


async def test_h44_one_sided_flag_on_simulated_engines_still_answers() -> None:
    async with (
        running_engine("prefill", "--no-enable-prefix-caching", bidirectional=False) as prefill,
        running_engine("decode") as decode,
        routed([prefill], [decode], timeouts={"prefill_s": 1}) as front,
    ):
        dialogue = Dialogue(front, dict(ID))
        for number in range(3):
            assert (await dialogue.say(f"{number} " + "word " * 100)).status == 200
        assert front.misses == {"first_turn": 1, "refused": 1, "paused": 1}
        assert decode.engine.oracle.violations == []


async def test_h03_a_handle_that_was_never_sent_is_used_later() -> None:
    async with (
        scripted_engine(prefilling()) as closed,
        scripted_engine(prefilling()) as prefill,
        scripted_engine(decoding()) as decode,
        routed([closed], [decode], timeouts={"probe_s": 3600}) as front,
    ):
        dialogue = await with_handle(front)
        name = next(item for item in front.router.parts.endpoints if item.role == "prefill")
        # The same endpoint, now on a port that refuses connections.
        front.router.parts.endpoints.put(replace(name, url="http://127.0.0.1:9"))
        assert (await dialogue.say("two")).status == 200
        assert front.count("fallbacks_total", reason="prefill_failed") == 1
        assert front.handles == 1
        front.router.parts.endpoints.put(replace(name, url=prefill.url))
        front.clock.offset += 3
        assert (await dialogue.say("three")).status == 200
        assert params_of(prefill) == ["D-engine"]
        assert front.hits == 1


async def test_h14_a_refused_turn_gives_the_blocks_back() -> None:
    script = in_turn(prefilling(), error(400, "too long"), prefilling())
    async with (
        scripted_engine(script) as prefill,
        scripted_engine(decoding()) as decode,
        routed([prefill], [decode]) as front,
    ):
        dialogue = await with_handle(front)
        reply = await dialogue.say("two")
        assert reply.status == 400
        assert reply.json["error"]["message"] == "too long"
        await eventually(lambda: front.count("handle_releases_total", result="released") == 1)
        release = prefill.requests[-1].params
        assert release == decode_handle(remote_num_tokens=0)


# P without a handle


@pytest.mark.parametrize("bad", [error(500), resets, hangs], ids=["500", "reset", "hang"])
async def test_h31_a_second_prefill_takes_over(bad: Any) -> None:
    async with (
        scripted_engine(bad) as first,
        scripted_engine(prefilling()) as second,
        scripted_engine(decoding()) as decode,
        routed([first, second], [decode], timeouts={"prefill_s": 1}) as front,
    ):
        for _ in range(3):
            assert (await front.chat("hello")).status == 200
        assert second.requests
        assert decode.requests[-1].params == prefill_params()


@BOTH
async def test_a_prefill_that_is_down_leaves_decode_alone(stream: bool) -> None:
    async with (
        scripted_engine(decoding()) as decode,
        routed(["http://127.0.0.1:9"], [decode], wait_ready=False) as front,
    ):
        await eventually(lambda: front.router.parts.endpoints.can_serve)
        reply = await front.chat("hello", stream=stream, **ID)
        assert reply.status == 200
        assert params_of(decode) == ["absent"]
        assert front.count("fallbacks_total", reason="no_prefill") == 1
        assert front.count("turns_total", way="SINGLE") == 1
        assert (await front.get("/readyz")).status == 200


async def test_refuse_answers_503_with_a_retry_hint_and_decode_sees_nothing() -> None:
    async with (
        scripted_engine(decoding()) as decode,
        routed(["http://127.0.0.1:9"], [decode], wait_ready=False, fallback="Refuse") as front,
    ):
        await eventually(lambda: any(item.ready for item in front.router.parts.endpoints))
        reply = await front.chat("hello")
        assert reply.status == 503
        assert reply.headers["Retry-After"] == "2"
        assert decode.requests == []
        assert (await front.get("/readyz")).status == 503
        assert (await front.get("/healthz")).status == 200


async def test_a_turn_that_no_engine_was_asked_is_neither_hit_nor_miss(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    nowhere = ["http://127.0.0.1:9"], ["http://127.0.0.1:10"]
    async with routed(*nowhere, wait_ready=False) as front:
        assert (await front.chat("hello")).status == 503
        assert front.count("turns_total", way="NONE") == 1
        assert front.count("kv_lookups_total", result="hit", reason="") == 0
    (turn,) = [record.turn for record in caplog.records if hasattr(record, "turn")]
    assert turn.fields()["way"] == "NONE"
    assert "kv" not in turn.fields()


async def test_without_decode_prefill_answers_alone_and_the_miss_names_what_is_missing() -> None:
    async with (
        scripted_engine(decoding()) as prefill,
        routed([prefill], ["http://127.0.0.1:9"], wait_ready=False) as front,
    ):
        await eventually(lambda: front.router.parts.endpoints.can_serve)
        assert (await front.chat("hello", **ID)).status == 200
        assert front.count("kv_lookups_total", result="miss", reason="no_decode") == 1


async def test_an_engine_without_transfer_is_complained_of_once_in_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        scripted_engine(answers(completion(None))) as prefill,
        scripted_engine(decoding()) as decode,
        routed([prefill], [decode]) as front,
    ):
        for _ in range(3):
            assert (await front.chat("hello")).status == 200
    complaints = [r for r in caplog.records if "--kv-transfer-config" in r.getMessage()]
    assert len(complaints) == 1


@pytest.mark.parametrize(
    ("bad", "status"),
    [(error(500), 502), (resets, 502), (hangs, 504)],
    ids=["5xx", "reset", "hang"],
)
async def test_refuse_passes_on_a_failed_prefill_without_its_words(bad: Any, status: int) -> None:
    async with (
        scripted_engine(bad) as prefill,
        scripted_engine(decoding()) as decode,
        routed([prefill], [decode], fallback="Refuse", timeouts={"prefill_s": 1}) as front,
    ):
        reply = await front.chat("hello")
        assert reply.status == status
        assert b"boom" not in reply.raw
        assert b"127.0.0.1" not in reply.raw
        assert decode.requests == []


@pytest.mark.parametrize(
    "params",
    [
        pytest.param(None, id="h26-null"),
        pytest.param({}, id="empty"),
        pytest.param(prefill_params(remote_block_ids=None), id="caseF"),
        pytest.param(prefill_params(remote_host=None), id="caseG"),
        pytest.param(prefill_params(do_remote_prefill=False), id="caseI"),
    ],
)
async def test_h26_unusable_parameters_of_prefill_leave_decode_alone(params: Any) -> None:
    async with (
        scripted_engine(answers(completion(params))) as prefill,
        scripted_engine(decoding()) as decode,
        routed([prefill], [decode]) as front,
    ):
        assert (await front.chat("hello")).status == 200
        assert params_of(decode) == ["absent"]
        assert front.count("fallbacks_total", reason="no_params") == 1


@pytest.mark.parametrize("status", [400, 401, 404, 422, 429])
async def test_a_4xx_of_prefill_is_the_answer(status: int) -> None:
    bad = error(status, "no: http://10.0.0.4:8000/v1", **{"Retry-After": "7"})
    async with (
        scripted_engine(bad) as prefill,
        scripted_engine(decoding()) as decode,
        routed([prefill], [decode]) as front,
    ):
        reply = await front.chat("hello")
        assert reply.status == status
        assert reply.json["error"]["message"] == "no: [address]"
        assert reply.headers["Retry-After"] == "7"
        assert len(prefill.requests) == 1
        assert decode.requests == []


async def test_a_4xx_without_json_has_a_message_of_our_own() -> None:
    async def plain(_: Recorded) -> web.StreamResponse:
        return web.Response(status=400, text="http://10.0.0.4 says no")

    async with (
        scripted_engine(plain) as prefill,
        scripted_engine(decoding()) as decode,
        routed([prefill], [decode]) as front,
    ):
        reply = await front.chat("hello")
        assert reply.json["error"]["message"] == "The engine refused the request."


# D


@BOTH
@pytest.mark.parametrize(
    ("bad", "status"),
    [
        pytest.param(error(500), 502, id="500"),
        pytest.param(resets, 502, id="reset"),
        pytest.param(hangs, 504, id="hang"),
        pytest.param(error(503, **{"Retry-After": "9"}), 503, id="busy"),
        pytest.param(error(400), 400, id="400"),
        pytest.param(answers("no object"), 502, id="odd"),
    ],
)
async def test_a_failing_decode_is_an_error_without_its_words(
    bad: Any, status: int, stream: bool
) -> None:
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(bad) as decode,
        routed([prefill], [decode], timeouts={"decode_first_byte_s": 1}) as front,
    ):
        reply = await front.chat("hello", stream=stream, **ID)
        assert reply.status == status
        assert b"10.0.0.4" not in reply.raw
        assert reply.json["error"]["request_id"] == reply.headers["X-Request-Id"]
        assert len(decode.requests) == 1
        assert front.handles == 0


@pytest.mark.parametrize("bad", [error(503), None], ids=["h95-busy", "unreachable"])
async def test_h04_both_legs_run_again_on_another_decode_engine(bad: Any) -> None:
    async with (
        scripted_engine(in_turn(prefilling(), prefilling(remote_engine_id="P-2"))) as prefill,
        scripted_engine(bad or decoding()) as first,
        scripted_engine(decoding()) as second,
        routed([prefill], [first, second], timeouts={"probe_s": 3600}) as front,
    ):
        endpoints = front.router.parts.endpoints
        found = next(item for item in endpoints if item.url == first.url)
        if bad is None:
            endpoints.put(replace(found, url="http://127.0.0.1:9"))
        # Busy as seen from here, so that the broken engine is the first choice.
        with endpoints.reserved(next(item for item in endpoints if item.url == second.url)):
            reply = await front.chat("hello", **ID)
        assert reply.status == 200
        assert params_of(second) == ["P-2"]
        assert front.count("retries_total", leg="decode") == 1


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize(
    "tail",
    [
        pytest.param(
            b'data: {"error": {"message": "at 10.0.0.4", "code": 500}}\n\n', id="h20-error"
        ),
        pytest.param(b"", id="h21-cut"),
        pytest.param(b'data: {"choices": [{"index": 0, "del', id="h21-cut-in-event"),
    ],
)
async def test_a_stream_that_fails_ends_with_an_error_event(tail: bytes, cut: bool) -> None:
    begun = b'data: {"choices": [{"index": 0, "delta": {"content": "Hel"}}]}\n\n'
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(streams(begun, tail, cut=cut)) as decode,
        routed([prefill], [decode]) as front,
    ):
        reply = await front.chat("hello", stream=True, **ID)
        assert reply.status == 200
        assert reply.raw.startswith(begun)
        assert b"10.0.0.4" not in reply.raw
        last = reply.chunks[-1]["error"]
        assert last["code"] == "engine_failed"
        assert last["request_id"] == reply.headers["X-Request-Id"]
        assert b"[DONE]" not in reply.raw
        assert front.handles == 0
        assert front.count("errors_total", kind="engine_failed") == 1
        assert len(decode.requests) == 1


async def test_an_error_before_the_first_chunk_has_a_status() -> None:
    refused = b'data: {"error": {"message": "bad value", "code": 400}}\n\ndata: [DONE]\n\n'
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(in_turn(streams(refused), streams(refused.replace(b"400", b"500")))) as d,
        routed([prefill], [d]) as front,
    ):
        first, second = [await front.chat("hello", stream=True) for _ in range(2)]
        assert (first.status, first.json["error"]["message"]) == (400, "bad value")
        assert second.status == 502


@BOTH
async def test_h24_finish_reason_error_leaves_no_handle(stream: bool) -> None:
    script = (
        streams(chat_events(decode_handle(), reason="error"))
        if stream
        else answers(completion(decode_handle(), reason="error"))
    )
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(script) as decode,
        routed([prefill], [decode]) as front,
    ):
        reply = await front.chat("hello", stream=stream, **ID)
        assert reply.status == (200 if stream else 502)
        assert front.handles == 0


async def test_an_error_object_under_200_is_an_error() -> None:
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(answers({"error": {"message": "x", "code": 400}})) as decode,
        routed([prefill], [decode]) as front,
    ):
        assert (await front.chat("hello")).status == 400


@BOTH
async def test_a_decode_that_stalls_in_its_answer_is_given_up(stream: bool) -> None:
    async def stalls(recorded: Recorded) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(recorded.http)
        await response.write(b'data: {"choices": []}\n\n')
        return await hangs(recorded)

    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(stalls) as decode,
        routed([prefill], [decode], timeouts={"decode_idle_s": 0.2}) as front,
    ):
        reply = await front.chat("hello", stream=stream)
        last = reply.chunks[-1] if stream else reply.json
        assert last["error"]["code"] == "engine_timeout"


async def test_an_endless_event_is_an_error() -> None:
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(streams(b"data: " + b"x" * 5_000)) as decode,
        routed([prefill], [decode], limits={"max_answer_bytes": 1024}) as front,
    ):
        assert (await front.chat("hello", stream=True)).status == 502


async def test_a_stream_request_that_is_answered_without_a_stream_is_an_error() -> None:
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(answers(completion())) as decode,
        routed([prefill], [decode]) as front,
    ):
        assert (await front.chat("hello", stream=True)).status == 502


@pytest.mark.parametrize(
    "handle",
    [
        pytest.param({"remote_block_ids": [[]]}, id="h27-malformed"),
        pytest.param({"remote_num_tokens": 49}, id="more-tokens-than-the-turn"),
    ],
)
async def test_h27_an_unusable_handle_is_not_kept(handle: dict[str, Any]) -> None:
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(decoding(**handle)) as decode,
        routed([prefill], [decode]) as front,
    ):
        dialogue = Dialogue(front, dict(ID))
        for text in ("one", "two"):
            assert (await dialogue.say(text)).status == 200
        assert front.handles == 0
        assert front.misses == {"first_turn": 1, "no_handle": 1}


async def test_a_handle_that_counts_too_many_tokens_is_released() -> None:
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(decoding(remote_num_tokens=49)) as decode,
        routed([prefill], [decode]) as front,
    ):
        assert (await front.chat("a", **ID)).status == 200
        await eventually(lambda: front.count("handle_releases_total", result="released") == 1)


async def test_an_answer_whose_text_is_not_kept_leaves_no_handle() -> None:
    pieces = [b"data: " + b"x" * 400 + b"\n\n"] * 4
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(streams(*pieces, chat_events(decode_handle()))) as decode,
        routed([prefill], [decode], limits={"max_answer_bytes": 1024}) as front,
    ):
        for _ in range(2):
            assert (await front.chat("a", stream=True, **ID)).status == 200
        assert front.misses == {"first_turn": 1, "unsupported": 1}


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([{"role": "user", "content": [{"type": "image_url"}]}], id="h59-media"),
        pytest.param("odd", id="no-list"),
        pytest.param([3], id="no-objects"),
    ],
)
async def test_h59_what_cannot_be_compared_runs_in_two_legs_without_handles(messages: Any) -> None:
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(decoding()) as decode,
        routed([prefill], [decode]) as front,
    ):
        body = {"model": "m", "messages": messages, **ID}
        assert (await front.post("/v1/chat/completions", body)).status == 200
        assert decode.requests[0].params == prefill_params()
        assert front.misses == {"unsupported": 1}
        assert front.handles == 0


async def test_h33_a_handle_of_an_engine_that_is_not_ready_is_not_sent() -> None:
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(decoding()) as decode,
        scripted_engine(decoding()) as other,
        routed([prefill], [decode, other], timeouts={"probe_s": 3600}) as front,
    ):
        dialogue = await with_handle(front)
        endpoints = front.router.parts.endpoints
        used = next(
            item
            for item in endpoints
            if item.url in (decode.url, other.url)
            and (decode if item.url == decode.url else other).requests
        )
        endpoints.put(replace(used, ready=False))
        assert (await dialogue.say("two")).status == 200
        assert front.misses == {"first_turn": 1, "other_engine": 1}


async def test_releases_are_bounded_and_failures_counted() -> None:
    async with (
        scripted_engine(in_turn(prefilling(), error(500))) as prefill,
        scripted_engine(decoding(" edge")) as decode,
        routed([prefill], [decode], kv={"releases_per_s": 1000}) as front,
    ):
        assert (await front.chat("a", **ID)).status == 200
        await eventually(lambda: front.count("handle_releases_total", result="failed") == 1)
        parts = front.router.parts
        reader = parts.routes.reader
        request = reader.read("chat", b'{"messages": []}', {}, "r")
        gone = Endpoint("gone", "http://gone", "decode", ready=True)
        for _ in range(1_001):
            parts.handles.discard(request, gone, decode_handle())
        assert front.count("handle_releases_total", result="dropped") == 1
        await eventually(lambda: front.count("handle_releases_total", result="impossible") == 1_000)


@pytest.mark.parametrize(
    ("body", "message"),
    [({"detail": "no such thing"}, "no such thing"), ([1], "The engine refused the request.")],
)
async def test_an_engines_message_is_found_in_other_shapes(body: Any, message: str) -> None:
    async with (
        scripted_engine(answers(body, status=422)) as prefill,
        scripted_engine(decoding()) as decode,
        routed([prefill], [decode]) as front,
    ):
        assert (await front.chat("a")).json["error"]["message"] == message


async def test_answers_that_are_no_json_or_break_off_are_errors() -> None:
    async def plain(_: Recorded) -> web.StreamResponse:
        return web.Response(text="{")

    async def short(recorded: Recorded) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(recorded.http)
        await response.write(b"{")
        return await resets(recorded)

    async with (
        scripted_engine(in_turn(plain, prefilling(), prefilling())) as prefill,
        scripted_engine(in_turn(plain, short)) as decode,
        routed([prefill], [decode]) as front,
    ):
        for _ in range(2):
            assert (await front.chat("a")).status == 502
        assert front.count("retries_total", leg="prefill") == 1


# What the engines are sent


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
