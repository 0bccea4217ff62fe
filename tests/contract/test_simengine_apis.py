"""The Responses and Messages APIs of the simulated engine, held against vLLM's own classes.

vLLM's request classes make chats of bodies, and its response classes take the simulation's answers,
in a child process with the CPU engines' interpreter; see `disaggpair_bed.simengine.replayapis`.
"""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from disaggpair_bed.simengine import messagesrequest, replayapis, responsesrequest, running_engine
from disaggpair_bed.simengine.apierrors import ApiError
from disaggpair_bed.simengine.rawclient import Json, events, post, user
from disaggpair_bed.simengine.replayer import replayed
from disaggpair_bed.simengine.twolegs import TURN_1

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]

TOOL = {"type": "function", "name": "look_up", "parameters": {"type": "object"}}
CALL = {"type": "function_call", "call_id": "c1", "name": "look_up", "arguments": '{"a": 1}'}
THOUGHT = {
    "type": "reasoning",
    "id": "r1",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "hm"}],
}
SAID = {
    "type": "message",
    "id": "m1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "an answer", "annotations": []}],
}

RESPONSES: dict[str, Json] = {
    "text": {"input": "hello"},
    "instructions": {"input": "hello", "instructions": "be brief"},
    "history": {"input": [user("one"), SAID, user("two")]},
    "parts": {"input": [{"role": "user", "content": [{"type": "input_text", "text": "one"}]}]},
    "an answer without a type": {"input": [user("one"), {"role": "assistant", "content": "two"}]},
    "a call and its result": {
        "input": [
            user("one"),
            CALL,
            {"type": "function_call_output", "call_id": "c1", "output": "a river"},
        ]
    },
    "a call after what was said": {"input": [user("one"), SAID, CALL]},
    "two calls": {"input": [user("one"), CALL, {**CALL, "call_id": "c2"}]},
    "thinking before an answer": {"input": [user("one"), THOUGHT, SAID]},
    "thinking before a call": {"input": [user("one"), THOUGHT, CALL]},
    "a limit": {"input": "hello", "max_output_tokens": 7},
    "P leg": {"input": "hello", "max_output_tokens": 1, "kv_transfer_params": TURN_1},
    "stream": {"input": "hello", "stream": True},
    "unknown field": {"input": "hello", "conversation_id": "c"},
    "no input": {},
    "input of a number": {"input": 3},
    "params as text": {"input": "hello", "kv_transfer_params": "x"},
}

USE = {"type": "tool_use", "id": "t1", "name": "look_up", "input": {"a": 1}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "a river"}
TOOLS = [{"name": "look_up", "input_schema": {"type": "object"}}]


def message(*messages: Json, **more: Any) -> Json:
    return {"model": "toy", "max_tokens": 50, "messages": list(messages), **more}


MESSAGES: dict[str, Json] = {
    "text": message(user("hello")),
    "system": message(user("hello"), system="be brief"),
    "system in parts": message(
        user("hello"),
        system=[
            {"type": "text", "text": "x-anthropic-billing-header: 1"},
            {"type": "text", "text": "be "},
            {"type": "text", "text": "brief"},
        ],
    ),
    "history": message(user("one"), {"role": "assistant", "content": "two"}, user("three")),
    "blocks": message({"role": "user", "content": [{"type": "text", "text": "one"}]}),
    "a call and its result": message(
        user("one"),
        {"role": "assistant", "content": [{"type": "text", "text": "so"}, USE]},
        {"role": "user", "content": [RESULT]},
    ),
    "a result in parts, and more": message(
        user("one"),
        {"role": "assistant", "content": [USE]},
        {
            "role": "user",
            "content": [
                {**RESULT, "content": [{"type": "text", "text": "a river"}]},
                {"type": "text", "text": "go on"},
            ],
        },
    ),
    "thinking": message(
        user("one"),
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "two"},
            ],
        },
        user("three"),
    ),
    "tools": message(user("hello"), tools=TOOLS),
    "a choice": message(user("hello"), tools=TOOLS, tool_choice={"type": "auto"}),
    "any choice": message(user("hello"), tools=TOOLS, tool_choice={"type": "any"}),
    "no choice": message(user("hello"), tools=TOOLS, tool_choice={"type": "none"}),
    "that tool": message(
        user("hello"), tools=TOOLS, tool_choice={"type": "tool", "name": "look_up"}
    ),
    "stop": message(user("hello"), stop_sequences=["a", "b"]),
    "stream": message(user("hello"), stream=True),
    "P leg": message(user("hello"), kv_transfer_params=TURN_1) | {"max_tokens": 1},
    "no limit": {"model": "toy", "messages": [user("hello")]},
    "no tokens": message(user("hello")) | {"max_tokens": 0},
    "no model": {"max_tokens": 5, "messages": [user("hello")]},
    "no messages": {"model": "toy", "max_tokens": 5},
    "an unknown block": message({"role": "user", "content": [{"type": "picture"}]}),
    "content of a number": message({"role": "user", "content": 3}),
}

BEYOND_CLASS = {"name"}
"""vLLM gives the end of a call's arguments a name for which the class has no field."""

_FLAGS = ("--reasoning-parser", "toy", "--enable-prompt-tokens-details")
_WANTED = "why? #think 4"


async def _answers() -> list[Json]:
    """What the simulation answers, and the class that it should be of."""
    shapes: list[Json] = []
    async with running_engine("both", *_FLAGS) as engine, aiohttp.ClientSession() as session:
        for body in (
            {"input": "hello"},
            {"input": _WANTED, "kv_transfer_params": TURN_1},
            {"input": "#call", "tools": [TOOL]},
            {"input": "hello", "max_output_tokens": 1},
        ):
            url = engine.url + "/v1/responses"
            _, whole = await post(session, url, body)
            shapes.append({"shape": "response", "value": whole})
            for _, event in await events(session, url, body):
                shapes.append({"shape": "response event", "value": event})
        for body in (
            message(user("hello")),
            message(user(_WANTED), kv_transfer_params=TURN_1),
            message(user("#call"), tools=TOOLS),
            message(user("hello"), stop_sequences=["e"]),
        ):
            url = engine.url + "/v1/messages"
            _, whole = await post(session, url, body)
            shapes.append({"shape": "message", "value": whole})
            for _, event in await events(session, url, body):
                shapes.append({"shape": "message event", "value": event})
    return shapes


@pytest.fixture(scope="module")
def real() -> dict[str, Any]:
    """vLLM's results: by route and name, and for all shapes."""
    bodies = {
        **{f"responses {name}": body for name, body in RESPONSES.items()},
        **{f"messages {name}": body for name, body in MESSAGES.items()},
    }
    shapes = asyncio.run(_answers())
    cases = [{"route": name.split()[0], "body": body} for name, body in bodies.items()]
    results = replayed(replayapis, [*cases, *shapes])
    found = dict(zip(bodies, results[: len(cases)], strict=True))
    return {**found, "shapes": list(zip(shapes, results[len(cases) :], strict=True))}


def _chat(as_chat: Callable[[object], Json], body: Json) -> Json | None:
    """The simulation's chat; None when it refuses."""
    try:
        chat = as_chat(body)
    except ApiError:
        return None
    if not isinstance(chat.get("kv_transfer_params"), dict | None):
        return None  # the chat route refuses it
    return chat


def _comparable(messages: list[Json]) -> list[Json]:
    """Messages without what has no effect on a prompt: ids, parts of a text, absent fields."""
    made = []
    for given in messages:
        content = given.get("content")
        if isinstance(content, list):
            content = "".join(part["text"] for part in content)
        calls = [
            (call["function"]["name"], json.loads(call["function"]["arguments"]))
            for call in given.get("tool_calls") or ()
        ]
        one = {"role": given["role"], "content": content, "calls": calls}
        made.append({**one, "reasoning": given.get("reasoning")})
    return made


@pytest.mark.parametrize("name", RESPONSES)
def test_a_response_is_asked_for_as_in_vllm(name: str, real: dict[str, Any]) -> None:
    expected = real[f"responses {name}"]
    chat = _chat(responsesrequest.as_chat, RESPONSES[name])
    assert (chat is not None) == expected["accepted"], expected
    if chat is not None:
        assert _comparable(chat["messages"]) == _comparable(expected["messages"])
        assert chat.get("max_completion_tokens", 1000) == expected["limit"]
        assert chat.get("kv_transfer_params") == expected["params"]
        assert bool(chat.get("stream")) == expected["stream"]


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_is_asked_for_as_in_vllm(name: str, real: dict[str, Any]) -> None:
    expected = real[f"messages {name}"]
    chat = _chat(messagesrequest.as_chat, MESSAGES[name])
    assert (chat is not None) == expected["accepted"], expected
    if chat is not None:
        assert _comparable(chat["messages"]) == _comparable(expected["messages"])
        assert chat["max_completion_tokens"] == expected["limit"]
        assert chat.get("kv_transfer_params") == expected["params"]
        assert bool(chat.get("stream")) == expected["stream"] == expected["usage"]
        assert chat.get("stop", []) == expected["stop"]
        assert [tool["function"]["name"] for tool in chat.get("tools", ())] == expected["tools"]
        choice = chat.get("tool_choice")
        named = choice["function"]["name"] if isinstance(choice, dict) else choice
        # vLLM writes "auto" where there are tools and no choice.
        assert (named or ("auto" if chat.get("tools") else None)) == expected["choice"]


def test_answers_and_events_are_those_of_vllm(real: dict[str, Any]) -> None:
    wrong = [
        (case["shape"], case["value"].get("type"), result)
        for case, result in real["shapes"]
        if not result["accepted"] or set(result["unknown"]) - BEYOND_CLASS
    ]
    assert not wrong, "\n".join(map(str, wrong))
    kinds = {case["value"].get("type") for case, _ in real["shapes"]}
    assert {"response.completed", "response.incomplete", "message_stop"} <= kinds
