"""The Messages API of the simulated engine."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import orjson
import pytest

from disaggpair_bed.simengine import RunningEngine, running_engine
from disaggpair_bed.simengine.rawclient import Json, chat_text, events, post, user
from disaggpair_bed.simengine.twolegs import TURN_1, until

QUESTION = "tell me about the rivers of the north " * 30
TOOL = {"name": "look_up", "input_schema": {"type": "object"}}


@pytest.fixture
async def engine() -> AsyncIterator[RunningEngine]:
    flags = ("--reasoning-parser", "toy", "--enable-prompt-tokens-details")
    async with running_engine("both", *flags) as engine:
        yield engine


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session:
        yield session


Session = aiohttp.ClientSession


def messages(text: str, **more: Any) -> Json:
    return {"model": "toy", "max_tokens": 200, "messages": [user(text)], **more}


async def test_a_message_says_what_the_chat_says(session: Session, engine: RunningEngine) -> None:
    system = [
        {"type": "text", "text": "x-anthropic-billing-header: 1"},
        {"type": "text", "text": "be brief"},
    ]
    url = engine.url + "/v1/messages"
    status, body = await post(session, url, messages("hello", system=system))
    right = await chat_text(
        session, engine.url, {"role": "system", "content": "be brief"}, user("hello")
    )
    assert status == 200
    assert body["content"] == [{"type": "text", "text": right}]
    assert (body["type"], body["stop_reason"]) == ("message", "end_turn")
    assert "kv_transfer_params" not in body


async def test_a_message_has_the_handle_and_its_stream_has_not(
    session: Session, engine: RunningEngine
) -> None:
    url = engine.url + "/v1/messages"
    body = messages(QUESTION, kv_transfer_params=TURN_1)
    _, whole = await post(session, url, body)
    assert whole["kv_transfer_params"]["do_remote_prefill"]
    streamed = await events(session, url, body)
    assert "remote_block_ids" not in str(streamed)
    assert [name for name, _ in streamed[:2]] == ["message_start", "content_block_start"]
    assert [name for name, _ in streamed[-3:]] == [
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    text = "".join(data["delta"].get("text", "") for name, data in streamed
                   if name == "content_block_delta")  # fmt: skip
    assert [{"type": "text", "text": text}] == whole["content"]
    usage = streamed[-2][1]["usage"]
    assert usage["output_tokens"] == whole["usage"]["output_tokens"]


async def test_a_tool_is_called_in_a_message(session: Session, engine: RunningEngine) -> None:
    url = engine.url + "/v1/messages"
    body = messages("what is it? #call", tools=[TOOL])
    _, whole = await post(session, url, body)
    (block,) = whole["content"]
    assert (block["type"], block["name"], whole["stop_reason"]) == (
        "tool_use",
        "look_up",
        "tool_use",
    )
    streamed = await events(session, url, body)
    joined = "".join(
        data["delta"]["partial_json"] for name, data in streamed if name == "content_block_delta"
    )
    assert orjson.loads(joined) == block["input"]
    result = {"type": "tool_result", "tool_use_id": block["id"], "content": "a river"}
    history = [*body["messages"], {"role": "assistant", "content": [block]},
               {"role": "user", "content": [result]}]  # fmt: skip
    status, then = await post(session, url, {**body, "messages": history})
    assert (status, then["content"][0]["type"]) == (200, "text")


@pytest.mark.parametrize(
    ("choice", "kind"),
    [({"type": "any"}, "tool_use"), ({"type": "tool", "name": "look_up"}, "tool_use"),
     ({"type": "none"}, "text"), ({"type": "auto"}, "text")],
)  # fmt: skip
async def test_a_choice_of_tools_is_followed(
    session: Session, engine: RunningEngine, choice: Json, kind: str
) -> None:
    body = messages("hello", tools=[TOOL], tool_choice=choice)
    _, whole = await post(session, engine.url + "/v1/messages", body)
    assert whole["content"][0]["type"] == kind


async def test_thinking_is_a_block_of_a_message(session: Session, engine: RunningEngine) -> None:
    url = engine.url + "/v1/messages"
    body = messages("why? #think 5")
    _, whole = await post(session, url, body)
    thinking, text = whole["content"]
    assert thinking["type"] == "thinking"
    streamed = await events(session, url, body)
    kinds = [data["delta"]["type"] for name, data in streamed if name == "content_block_delta"]
    assert kinds[0] == "thinking_delta"
    assert "signature_delta" in kinds
    assert kinds[-1] == "text_delta"
    history = [user("why?"), {"role": "assistant", "content": [thinking, text]}, user("and?")]
    assert (await post(session, url, {**body, "messages": history}))[0] == 200


@pytest.mark.parametrize(
    ("changes", "reason", "sequence"),
    [({"max_tokens": 2}, "max_tokens", None), ({"stop_sequences": ["e"]}, "stop_sequence", "e")],
)
async def test_a_message_says_why_it_stopped(
    session: Session, engine: RunningEngine, changes: Json, reason: str, sequence: str | None
) -> None:
    _, whole = await post(session, engine.url + "/v1/messages", messages("hello", **changes))
    assert (whole["stop_reason"], whole.get("stop_sequence")) == (reason, sequence)


async def test_what_was_cached_is_told_apart(session: Session, engine: RunningEngine) -> None:
    url = engine.url + "/v1/messages"
    _, first = await post(session, url, messages(QUESTION))
    _, second = await post(session, url, messages(QUESTION))
    assert second["usage"]["cache_read_input_tokens"] > 0
    assert (
        second["usage"]["input_tokens"] + second["usage"]["cache_read_input_tokens"]
        == first["usage"]["input_tokens"]
    )


@pytest.mark.parametrize(
    "body",
    [
        [],
        {"model": "toy", "messages": []},
        {"max_tokens": 5, "messages": []},
        {"model": "toy", "max_tokens": 5},
        {"model": "toy", "max_tokens": 5, "messages": [1]},
        messages("x") | {"messages": [{"role": "user", "content": 1}]},
        messages("x", system=[{"type": "image"}]),
    ],
)
async def test_a_wrong_message_is_refused_as_on_all_routes(
    session: Session, engine: RunningEngine, body: Any
) -> None:
    found, answer = await post(session, engine.url + "/v1/messages", body)
    assert (found, answer["error"]["code"]) == (400, 400)


async def test_what_the_engine_refuses_has_the_shape_of_messages(
    session: Session, engine: RunningEngine
) -> None:
    body = messages("x", model="another")
    found, answer = await post(session, engine.url + "/v1/messages", body)
    assert (found, answer["type"], answer["error"]["type"]) == (404, "error", "not_found_error")


async def test_a_block_of_an_unknown_kind_is_refused(
    session: Session, engine: RunningEngine
) -> None:
    body = messages("x")
    body["messages"] = [{"role": "user", "content": [{"type": "picture"}]}]
    assert (await post(session, engine.url + "/v1/messages", body))[0] == 400
    hidden = {"type": "redacted_thinking", "data": "x"}
    body["messages"] = [{"role": "assistant", "content": [hidden]}, user("x")]
    assert (await post(session, engine.url + "/v1/messages", body))[0] == 200


async def test_a_message_that_fails_in_mid_stream_ends_with_an_error_event(
    session: Session, engine: RunningEngine
) -> None:
    engine.faults.add("stream_error", after=3)
    streamed = await events(session, engine.url + "/v1/messages", messages("hello"))
    assert streamed[-1][0] == "error"
    assert streamed[-1][1]["error"]["type"] == "api_error"


async def test_a_message_with_a_dead_core_is_an_api_error(
    session: Session, engine: RunningEngine
) -> None:
    engine.faults.add("crash")
    status, body = await post(session, engine.url + "/v1/messages", messages("hello"))
    assert (status, body["error"]["type"]) == (500, "api_error")
    await until(lambda: engine.closed)


async def test_tokens_of_a_message_are_counted(session: Session, engine: RunningEngine) -> None:
    body = messages("hello")
    _, whole = await post(session, engine.url + "/v1/messages", body)
    _, counted = await post(session, engine.url + "/v1/messages/count_tokens", body)
    assert counted == {"input_tokens": whole["usage"]["input_tokens"]}
