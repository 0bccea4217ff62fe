"""What a chat can ask the simulated engine for: calls, thinking, tokens."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import openai
import orjson
import pytest

from disaggpair_bed.simengine import RunningEngine, running_engine
from disaggpair_bed.simengine.rawclient import post, user

TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {}}}


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


@pytest.mark.parametrize("stream", [False, True])
async def test_a_chat_calls_a_tool_on_demand_after_some_thinking(
    session: Session, engine: RunningEngine, stream: bool
) -> None:
    parts = [{"type": "text", "text": "what is it? #think 4 "}, {"type": "text", "text": "#call"}]
    body = {"messages": [{"role": "user", "content": parts}], "tools": [TOOL]}
    url = engine.url + "/v1/chat/completions"
    if not stream:
        _, whole = await post(session, url, body)
        (choice,) = whole["choices"]
        assert choice["finish_reason"] == "tool_calls"
        assert choice["message"]["tool_calls"][0]["function"]["name"] == "look_up"
        assert choice["message"]["reasoning"]
        return
    async with openai.AsyncOpenAI(base_url=engine.url + "/v1", api_key="k") as client:
        given: Any = body
        async with client.chat.completions.stream(model="toy", **given) as chunks:
            final = await chunks.get_final_completion()
    calls = final.choices[0].message.tool_calls
    assert calls is not None
    assert [orjson.loads(call.function.arguments)["answer"] != "" for call in calls] == [True]


async def test_nothing_is_called_without_tools_or_a_mark(
    session: Session, engine: RunningEngine
) -> None:
    url = engine.url + "/v1/chat/completions"
    answered = {"role": "assistant", "content": "#call"}
    for body in (
        {"messages": [user("#call")]},
        {"messages": [user("hello")], "tools": [TOOL]},
        {"messages": [user("#call")], "tools": [TOOL], "tool_choice": "none"},
        {"messages": [user("hello"), answered], "tools": [TOOL]},
    ):
        _, whole = await post(session, url, body)
        assert whole["choices"][0]["finish_reason"] == "stop"


async def test_the_tokenizer_agrees_with_the_engine(
    session: Session, engine: RunningEngine
) -> None:
    body = {"messages": [user("hello")], "return_token_strs": True}
    _, counted = await post(session, engine.url + "/tokenize", body)
    _, whole = await post(session, engine.url + "/v1/chat/completions", body)
    assert counted["count"] == whole["usage"]["prompt_tokens"] == len(counted["tokens"])
    _, back = await post(session, engine.url + "/detokenize", {"tokens": counted["tokens"]})
    assert back["prompt"] == "".join(counted["token_strs"])
    _, plain = await post(session, engine.url + "/tokenize", {"prompt": "hello"})
    assert plain["token_strs"] is None
    assert (await post(session, engine.url + "/tokenize", {"prompt": "x", "model": "y"}))[0] == 404
    async with session.post(engine.url + "/tokenize", data=b"{") as response:
        assert response.status == 400
    async with session.post(engine.url + "/tokenize", data=b"[]") as response:
        assert response.status == 400
