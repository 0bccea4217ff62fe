"""What a turn becomes when decode does not do its part."""

from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from disaggpair_bed.fakes.upstream import (
    Recorded,
    answers,
    chat_events,
    completion,
    decode_handle,
    decoding,
    engine_ids,
    failing,
    hangs,
    in_turn,
    prefill_params,
    prefilling,
    resets,
    scripted_engine,
    streams,
)
from disaggpair_bed.routing import Dialogue, eventually, routed, waiting_dialogue
from disaggpair_router.pick import Endpoint

ID = {"conversation_id": "c-1"}
BOTH = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


@BOTH
@pytest.mark.parametrize(
    ("bad", "status"),
    [
        pytest.param(failing(500), 502, id="500"),
        pytest.param(resets, 502, id="reset"),
        pytest.param(hangs, 504, id="hang"),
        pytest.param(failing(503, **{"Retry-After": "9"}), 503, id="busy"),
        pytest.param(failing(400), 400, id="400"),
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


@pytest.mark.parametrize("bad", [failing(503), None], ids=["h95-busy", "unreachable"])
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
        assert engine_ids(second) == ["P-2"]
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
@pytest.mark.parametrize("reason", ["error", "abort"])
async def test_h24_an_engine_that_fails_or_is_put_to_sleep_under_200_gives_an_error(
    reason: str, stream: bool
) -> None:
    script = (
        streams(chat_events(decode_handle(), reason=reason))
        if stream
        else answers(completion(decode_handle(), reason=reason))
    )
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(script) as decode,
        routed([prefill], [decode], kv={"handle_in_stream": True}) as front,
    ):
        reply = await front.chat("hello", stream=stream, **ID)
        assert reply.status == (200 if stream else 502)
        assert b"engine_failed" in reply.raw
        assert b"[DONE]" not in reply.raw
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
        dialogue = await waiting_dialogue(front)
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
        scripted_engine(in_turn(prefilling(), failing(500))) as prefill,
        scripted_engine(decoding(" edge")) as decode,
        routed([prefill], [decode], kv={"releases_per_s": 1000}) as front,
    ):
        assert (await front.chat("a", **ID)).status == 200
        await eventually(lambda: front.count("handle_releases_total", result="failed") == 1)
        parts = front.router.parts
        reader = parts.routes.requests.reader
        request = reader.read("chat", b'{"messages": []}', {}, "r")
        gone = Endpoint("gone", "http://gone", "decode", ready=True)
        for _ in range(1_001):
            parts.held.turn(request).discard(gone, decode_handle())
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
