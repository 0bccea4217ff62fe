"""Turns whose equal messages may be other tokens: they keep no handle on the plain connector."""

import gzip
from typing import Any

import orjson
import pytest

from disaggpair_bed.fakes.upstream import (
    Recorded,
    ScriptedEngine,
    decoding,
    prefilling,
    scripted_engine,
)
from disaggpair_bed.routing import Dialogue, eventually, routed
from disaggpair_router.kv import FIRST_TURN

ID = {"conversation_id": "c-1"}

HIDING = [
    {"include_reasoning": False},
    {"ignore_eos": True},
    {"continue_final_message": True, "add_generation_prompt": False},
    {"add_generation_prompt": False},
]


@pytest.mark.parametrize("fields", HIDING, ids=lambda fields: next(iter(fields)))
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_turn_that_hides_tokens_leaves_nothing_to_read(
    fields: dict[str, Any], stream: bool
) -> None:
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(decoding()) as decode,
        routed([prefill], [decode]) as front,
    ):
        dialogue = Dialogue(front, {**ID, "stream": stream, **fields})
        for text in ("one", "two"):
            assert (await dialogue.say(text)).status == 200
        turns = [one for one in prefill.requests if one.http.path == "/v1/chat/completions"]
        assert [one.params for one in turns] == [FIRST_TURN, FIRST_TURN]
        assert front.misses == {"unsupported": 2}
        assert front.handles == 0


@pytest.mark.parametrize("fields", HIDING, ids=lambda fields: next(iter(fields)))
async def test_a_connector_that_compares_tokens_takes_such_turns(fields: dict[str, Any]) -> None:
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(decoding()) as decode,
        routed([prefill], [decode], kv={"verified_reads": True}) as front,
    ):
        dialogue = Dialogue(front, {**ID, **fields})
        for text in ("one", "two"):
            assert (await dialogue.say(text)).status == 200
        assert front.hits == 1


@pytest.mark.parametrize(
    "text",
    ["<think>so</think>yes", "so</think>yes", "[THINK]so[/THINK]yes", "<|channel|>analysis"],
)
async def test_reasoning_inside_the_text_is_reasoning(text: str) -> None:
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(decoding(text)) as decode,
        routed([prefill], [decode]) as front,
    ):
        dialogue = Dialogue(front, dict(ID))
        for said in ("one", "two"):
            assert (await dialogue.say(said)).status == 200
        assert front.misses == {"first_turn": 1, "reasoning": 1}


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("where", ["metadata", "unknown", "vllm_xargs"])
async def test_a_body_that_is_nested_too_deeply_is_a_400_and_costs_no_handle(where: str) -> None:
    deep = {"deep": nested(300)} if where == "vllm_xargs" else nested(300)
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(decoding()) as decode,
        routed([prefill], [decode]) as front,
    ):
        dialogue = Dialogue(front, dict(ID))
        assert (await dialogue.say("one")).status == 200
        body = {
            **ID,
            "model": "toy",
            "messages": [*dialogue.messages, {"role": "user", "content": "two"}],
        }
        text = orjson.dumps(body)[:-1] + b"," + _member(where, deep) + b"}"
        reply = await front.post("/v1/chat/completions", text)
        assert reply.status == 400
        assert "nested too deeply" in reply.json["error"]["message"]
        assert front.handles == 1
        assert (await dialogue.say("two")).status == 200
        assert front.hits == 1


def _member(name: str, value: Any) -> bytes:
    # orjson itself writes 254 levels at most.
    return f'"{name}":{str(value).replace(chr(39), chr(34))}'.encode()


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate", "zstd", "nonsense"])
async def test_a_compressed_body_is_refused_before_it_is_unpacked(encoding: str) -> None:
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(decoding()) as decode,
        routed([prefill], [decode]) as front,
    ):
        packed = gzip.compress(b"{}")
        for _ in range(2):  # on one connection, which is still of use
            reply = await front.post(
                "/v1/chat/completions", packed, headers={"Content-Encoding": encoding}
            )
            assert reply.status == 415
            assert reply.json["error"]["code"] == "unsupported_content_encoding"
        assert (await front.chat("hello")).status == 200


def releases_at(engine: ScriptedEngine) -> list[Recorded]:
    return [one for one in engine.requests if one.http.path == "/v1/completions"]


async def test_an_unexpected_failure_gives_the_handle_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(decoding()) as decode,
        routed([prefill], [decode]) as front,
    ):
        dialogue = Dialogue(front, dict(ID))
        assert (await dialogue.say("one")).status == 200

        def fails(*_: Any, **__: Any) -> Any:
            raise ZeroDivisionError

        with monkeypatch.context() as patched:
            patched.setattr("disaggpair_router.prefill.prefill_body", fails)
            assert (await dialogue.say("two")).status == 500
        await eventually(lambda: bool(releases_at(prefill)))
        assert releases_at(prefill)[0].params["remote_num_tokens"] == 0
