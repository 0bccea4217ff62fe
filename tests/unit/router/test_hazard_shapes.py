"""Shapes of requests and answers, and what reaches nobody (h36, h40, h50, h53, h58, h76)."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from disaggpair_bed.chaos.bench import lease_bench
from disaggpair_bed.fakes.upstream import (
    answers,
    completion,
    decode_handle,
    decoding,
    prefilling,
    scripted_engine,
    streams,
)
from disaggpair_bed.routing import Dialogue, routed
from disaggpair_router.apis.completions import CompletionStream
from disaggpair_router.kv import checked_handle, prefill_body
from disaggpair_router.relay import StreamRelay

ID = {"conversation_id": "c-1"}
LONG = "some words that make a prompt of more than sixty-four tokens " * 6
HIDDEN = (b"kv_transfer_params", b"remote_", b"10.0.0.", b"D-engine", b"P-engine")


# 2c: what runs on D alone


@pytest.mark.parametrize("leased", [False, True], ids=["handles", "leases"])
@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"n": 2}, id="h49-n-of-a-chat"),
        pytest.param({"best_of": 2}, id="h49-best-of"),
        pytest.param({"use_beam_search": True}, id="h50-beam-search"),
        pytest.param({"prompt_logprobs": 0}, id="h52-zero-prompt-logprobs"),
        pytest.param({"echo": True}, id="h53-echo"),
        pytest.param({"truncate_prompt_tokens": 1}, id="h61-truncate-to-one"),
    ],
)
async def test_a_turn_that_cannot_be_split_runs_on_decode_without_parameters(
    fields: dict[str, Any], leased: bool
) -> None:
    async with lease_bench() as bench, scripted_engine(decoding()) as decode:
        front_of = bench.router() if leased else routed([bench.prefill], [decode], wait_ready=True)
        async with front_of as front:
            reply = await front.chat(LONG, **ID, **fields)
            assert reply.status == 200
            assert front.misses == {"unsupported": 1}
            assert front.count("turns_total", way="SINGLE") == 1
            assert bench.prefill.recorder.received == type(bench.prefill.recorder.received)()
            assert bench.leases == 0
            sent = (
                [one.body for one in bench.decode.recorder.received]
                if leased
                else [one.body for one in decode.requests]
            )
            assert [("kv_transfer_params" in body) for body in sent] == [False]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_h53_the_echo_of_a_completion_comes_back(stream: bool) -> None:
    async with lease_bench() as bench, bench.router() as front:
        body = {"model": "toy", "prompt": LONG, "echo": True, "stream": stream}
        reply = await front.post("/v1/completions", body)
        bodies = reply.chunks if stream else [reply.json]
        text = "".join(choice["text"] for chunk in bodies for choice in chunk["choices"])
        assert text.startswith(LONG)


@pytest.mark.parametrize("key", ["reasoning", "reasoning_content"])
@pytest.mark.parametrize("stream", [False, True], ids=["h58-whole", "h58-stream"])
async def test_reasoning_reaches_the_client_as_decode_gave_it(key: str, stream: bool) -> None:
    whole = completion(decode_handle(), **{key: "so\n  so "})
    chunk = {"choices": [{"index": 0, "delta": {key: "so\n  so "}, "finish_reason": None}]}
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    events = b"".join(b"data: " + orjson.dumps(one) + b"\n\n" for one in (chunk, end))
    script = streams(events, b"data: [DONE]\n\n") if stream else answers(whole)
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(script) as decode,
        routed([prefill], [decode]) as front,
    ):
        reply = await front.chat("hello", stream=stream, **ID)
        if stream:
            assert reply.raw == events + b"data: [DONE]\n\n"
        else:
            given_back = reply.json
            whole.pop("kv_transfer_params")
            assert given_back == whole


# 2b, 2e: the handle


@given(st.text(min_size=1), st.integers(1, 65_535))
def test_h36_the_host_of_a_handle_is_never_rewritten(host: str, port: int) -> None:
    given_host = decode_handle(remote_host=host, remote_port=port)
    sent = prefill_body("chat", {"messages": []}, checked_handle(given_host).for_prefill())
    params = orjson.loads(orjson.dumps(sent))["kv_transfer_params"]
    assert (params["remote_host"], params["remote_port"]) == (host, port)


async def test_h36_p_gets_the_host_that_d_named_and_not_the_routers() -> None:
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(decoding(remote_host="10.9.9.9", remote_port=5603)) as decode,
        routed([prefill], [decode]) as front,
    ):
        dialogue = Dialogue(front, dict(ID))
        await dialogue.say("one")
        await dialogue.say("two")
        params = prefill.requests[1].params
        assert (params["remote_host"], params["remote_port"]) == ("10.9.9.9", 5603)


def test_h40_a_handle_of_several_groups_is_sent_whole_or_not_at_all() -> None:
    several = decode_handle(remote_block_ids=[[71, 72, 73], [5], []])
    sent = orjson.loads(orjson.dumps(checked_handle(several).for_prefill()))
    assert sent == several


@pytest.mark.parametrize("stream", [False, True], ids=["h76-whole", "h76-stream"])
async def test_nothing_of_a_handle_reaches_the_client(stream: bool) -> None:
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(decoding()) as decode,
        routed([prefill], [decode]) as front,
    ):
        dialogue = Dialogue(front, dict(ID))
        for text in ("one", "two"):
            reply = await dialogue.say(text, stream=stream)
            seen = reply.raw + repr(dict(reply.headers)).encode()
            assert [part for part in HIDDEN if part in seen] == []


@pytest.mark.parametrize("stream", [False, True], ids=["h76-whole-leased", "h76-stream-leased"])
async def test_nothing_of_a_lease_reaches_the_client(stream: bool) -> None:
    async with lease_bench() as bench, bench.router() as front:
        talk = Dialogue(front, dict(ID))
        for _ in range(3):
            reply = await talk.say(LONG, stream=stream)
            seen = reply.raw + repr(dict(reply.headers)).encode()
            engines = [one.engine.engine_id.encode() for one in bench.engines]
            hosts = [one.options.host.encode() for one in bench.engines if one.options.host]
            hidden = (*HIDDEN, b"disaggpair", b"lease", *engines, *hosts)
            assert [part for part in hidden if part in seen] == []
        assert front.hits == 2


@given(
    st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3),
    st.lists(st.integers(1, 60), max_size=12),
    st.booleans(),
)
def test_h76_no_stream_shows_a_handle_wherever_it_is_cut(
    extra: dict[str, str], cuts: list[int], spaced: bool
) -> None:
    chunk = {
        **extra,
        "choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"}],
        "kv_transfer_params": decode_handle(),
    }
    text = orjson.dumps(chunk)
    if spaced:
        text = text.replace(b'"kv_transfer_params":', b'"kv_transfer_params" : ')
    raw = b"data: " + text + b"\n\ndata: [DONE]\n\n"
    relay = StreamRelay(CompletionStream(), max_event_bytes=2**20, max_answer_bytes=2**20)
    out, at = b"", 0
    for cut in cuts:
        out += relay.feed(raw[at : at + cut])
        at += cut
    out += relay.feed(raw[at:])
    assert b"remote_block_ids" not in out
    assert relay.params == decode_handle()
