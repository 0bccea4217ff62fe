"""The Responses API of the simulated engine."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import openai
import orjson
import pytest

from disaggpair_bed.simengine import RunningEngine, running_engine
from disaggpair_bed.simengine.rawclient import chat_text, events, post, user
from disaggpair_bed.simengine.twolegs import TURN_1

QUESTION = "tell me about the rivers of the north " * 30
TOOL = {"type": "function", "name": "look_up", "parameters": {"type": "object"}}


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


async def test_a_response_says_what_the_chat_says(session: Session, engine: RunningEngine) -> None:
    url = engine.url + "/v1/responses"
    status, body = await post(session, url, {"input": "hello", "instructions": "be brief"})
    assert status == 200
    assert (body["object"], body["status"]) == ("response", "completed")
    (message,) = body["output"]
    right = await chat_text(
        session, engine.url, {"role": "system", "content": "be brief"}, user("hello")
    )
    assert message["content"][0]["text"] == right
    assert body["usage"]["output_tokens"] > 0
    assert body["kv_transfer_params"] is None


async def test_a_response_has_the_handle_and_so_has_the_end_of_its_stream(
    session: Session, engine: RunningEngine
) -> None:
    url = engine.url + "/v1/responses"
    body = {"input": QUESTION, "kv_transfer_params": TURN_1}
    _, whole = await post(session, url, body)
    assert whole["kv_transfer_params"]["do_remote_prefill"]
    streamed = await events(session, url, body)
    assert streamed[-1][0] == "response.completed"
    handle = streamed[-1][1]["response"]["kv_transfer_params"]
    assert handle["remote_num_tokens"] == whole["kv_transfer_params"]["remote_num_tokens"]
    rest = [data for _, data in streamed[:-1]]
    assert all("remote_block_ids" not in orjson.dumps(data).decode() for data in rest)


async def test_the_client_of_openai_understands_the_stream(engine: RunningEngine) -> None:
    async with openai.AsyncOpenAI(base_url=engine.url + "/v1", api_key="k") as client:
        text, kinds = "", []
        async with client.responses.stream(model="toy", input="hello") as stream:
            async for event in stream:
                kinds.append(event.type)
                if event.type == "response.output_text.delta":
                    text += event.delta
            final = await stream.get_final_response()
    assert final.output_text == text != ""
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"


async def test_a_response_continues_from_items(session: Session, engine: RunningEngine) -> None:
    items = [
        user("one"),
        {"type": "message", "role": "assistant", "content": [
            {"type": "output_text", "text": "an answer", "annotations": []}]},
        {"role": "user", "content": [{"type": "input_text", "text": "two"}]},
    ]  # fmt: skip
    _, body = await post(session, engine.url + "/v1/responses", {"input": items})
    right = await chat_text(
        session, engine.url, user("one"), {"role": "assistant", "content": "an answer"}, user("two")
    )
    assert body["output"][0]["content"][0]["text"] == right


async def test_a_cut_response_is_incomplete(session: Session, engine: RunningEngine) -> None:
    url = engine.url + "/v1/responses"
    body = {"input": "hello", "max_output_tokens": 2}
    _, whole = await post(session, url, body)
    assert (whole["status"], whole["incomplete_details"]) == (
        "incomplete",
        {"reason": "max_output_tokens"},
    )
    assert (await events(session, url, body))[-1][0] == "response.incomplete"


async def test_a_tool_is_called_in_a_response(session: Session, engine: RunningEngine) -> None:
    url = engine.url + "/v1/responses"
    body = {"input": "what is it? #call look_up", "tools": [TOOL]}
    _, whole = await post(session, url, body)
    (call,) = whole["output"]
    assert whole["tools"] == [TOOL]
    assert (call["type"], call["name"]) == ("function_call", "look_up")
    streamed = await events(session, url, body)
    joined = "".join(data["delta"] for name, data in streamed if name.endswith("arguments.delta"))
    assert orjson.loads(joined) == orjson.loads(call["arguments"])
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "a river"}
    again = [user("what is it? #call look_up"), call, output]
    status, then = await post(session, url, {"input": again, "tools": [TOOL]})
    assert (status, then["output"][0]["type"]) == (200, "message")


async def test_thinking_comes_before_the_message_of_a_response(
    session: Session, engine: RunningEngine
) -> None:
    url = engine.url + "/v1/responses"
    body = {"input": "why? #think 5"}
    _, whole = await post(session, url, body)
    assert [item["type"] for item in whole["output"]] == ["reasoning", "message"]
    streamed = await events(session, url, body)
    done = [data["item"] for name, data in streamed if name == "response.output_item.done"]
    assert [item["type"] for item in done] == ["reasoning", "message"]
    assert done[0]["content"] == whole["output"][0]["content"]
    assert done[1]["content"][0]["text"] == whole["output"][1]["content"][0]["text"]
    numbers = [data["sequence_number"] for _, data in streamed]
    assert numbers == list(range(len(streamed)))


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"input": [3]}, 400),
        ({"input": [{"type": "picture"}]}, 400),
        ({"input": "x", "background": True}, 400),
        ({"input": "x", "previous_response_id": "resp_1"}, 404),
        ({"input": "x", "model": "another"}, 404),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, 400),
        ({"input": [{"role": "user", "content": 3}]}, 400),
        ([], 400),
    ],
)
async def test_a_wrong_body_of_a_response_is_refused(
    session: Session, engine: RunningEngine, body: Any, status: int
) -> None:
    found, answer = await post(session, engine.url + "/v1/responses", body)
    assert found == status
    assert answer["error"]["code"] == status


async def test_the_stream_of_a_response_that_fails_breaks(
    session: Session, engine: RunningEngine
) -> None:
    engine.faults.add("stream_error", after=3)
    with pytest.raises(aiohttp.ClientError):
        await events(session, engine.url + "/v1/responses", {"input": "hello"})


async def test_the_id_of_a_response_is_the_body_s_or_its_own(
    session: Session, engine: RunningEngine
) -> None:
    url = engine.url + "/v1/responses"
    assert (await post(session, url, {"input": "x", "request_id": "mine"}))[1]["id"] == "mine"
    headers = {"X-Request-Id": "other"}
    async with session.post(url, json={"input": "x"}, headers=headers) as response:
        assert (await response.json())["id"].startswith("resp_")
