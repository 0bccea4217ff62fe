"""What a turn becomes when prefill does not do its part."""

import logging
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from disaggpair_bed.fakes.upstream import (
    Recorded,
    answers,
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
)
from disaggpair_bed.routing import Dialogue, eventually, routed, waiting_dialogue
from disaggpair_bed.simengine import running_engine

ID = {"conversation_id": "c-1"}
BOTH = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


# P with a handle


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(failing(500), id="h06-load-failure"),
        pytest.param(resets, id="h02-dropped-socket"),
        pytest.param(answers("no object"), id="no-object"),
    ],
)
async def test_a_failed_read_is_repeated_without_the_handle(bad: Any) -> None:
    prefill_script = in_turn(prefilling(), bad, prefilling())
    async with (
        scripted_engine(prefill_script) as prefill,
        scripted_engine(decoding()) as decode,
        routed([prefill], [decode]) as front,
    ):
        dialogue = await waiting_dialogue(front)
        assert (await dialogue.say("two")).status == 200
        assert engine_ids(prefill) == [None, "D-engine", None]
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
        dialogue = await waiting_dialogue(front)
        for text in ("two", "three"):
            assert (await dialogue.say(text)).status == 200
        assert front.misses == {"first_turn": 1, "refused": 1, "paused": 1}
        front.clock.offset += 61
        assert (await dialogue.say("four")).status == 200
        assert front.misses["refused"] == 2


async def test_h44_one_sided_flag_on_simulated_engines_still_answers(
    engines_end_well: list[str],
) -> None:
    engines_end_well.append("parked for ever")
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
        dialogue = await waiting_dialogue(front)
        name = next(item for item in front.router.parts.endpoints if item.role == "prefill")
        # The same endpoint, now on a port that refuses connections.
        front.router.parts.endpoints.put(replace(name, url="http://127.0.0.1:9"))
        assert (await dialogue.say("two")).status == 200
        assert front.count("fallbacks_total", reason="prefill_failed") == 1
        assert front.handles == 1
        front.router.parts.endpoints.put(replace(name, url=prefill.url))
        front.clock.offset += 3
        assert (await dialogue.say("three")).status == 200
        assert engine_ids(prefill) == ["D-engine"]
        assert front.hits == 1


async def test_h14_a_refused_turn_gives_the_blocks_back() -> None:
    script = in_turn(prefilling(), failing(400, "too long"), prefilling())
    async with (
        scripted_engine(script) as prefill,
        scripted_engine(decoding()) as decode,
        routed([prefill], [decode]) as front,
    ):
        dialogue = await waiting_dialogue(front)
        reply = await dialogue.say("two")
        assert reply.status == 400
        assert reply.json["error"]["message"] == "too long"
        await eventually(lambda: front.count("handle_releases_total", result="released") == 1)
        release = prefill.requests[-1].params
        assert release == decode_handle(remote_num_tokens=0)


# P without a handle


@pytest.mark.parametrize("bad", [failing(500), resets, hangs], ids=["500", "reset", "hang"])
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
        assert engine_ids(decode) == ["absent"]
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
    [(failing(500), 502), (resets, 502), (hangs, 504)],
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
        assert engine_ids(decode) == ["absent"]
        assert front.count("fallbacks_total", reason="no_params") == 1


@pytest.mark.parametrize("status", [400, 401, 404, 422, 429])
async def test_a_4xx_of_prefill_is_the_answer(status: int) -> None:
    bad = failing(status, "no: http://10.0.0.4:8000/v1", **{"Retry-After": "7"})
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
