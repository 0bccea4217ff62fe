"""LiteLLM as a library: several turns and tools, plain and streamed, over chat and messages."""

import json
import sys
from typing import Any

import litellm

RIVER = "Tell me of the river and of all the towns that lie on it, one after the other. " * 4
TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Looks a town up.",
        "parameters": {"type": "object", "properties": {"answer": {"type": "string"}}},
    },
}


def said(service: dict[str, Any], messages: list[Any], stream: bool, **more: Any) -> Any:
    """One turn's message, as the package gives it."""
    reply: Any = litellm.completion(**service, messages=messages, stream=stream, **more)
    if stream:
        reply = litellm.stream_chunk_builder(list(reply), messages=messages)
    return reply.choices[0].message


def talk(service: dict[str, Any], name: str, stream: bool) -> list[str]:
    messages: list[Any] = []
    for turn in range(3):
        messages.append({"role": "user", "content": f"talk {name} {turn} {RIVER}"})
        messages.append(said(service, messages, stream).model_dump())
    return [message["content"] for message in messages[1::2]]


def tools(service: dict[str, Any], name: str, stream: bool) -> list[Any]:
    messages: list[Any] = [{"role": "user", "content": f"tools {name} {RIVER} #call"}]
    called = said(service, messages, stream, tools=[TOOL])
    (call,) = called.tool_calls
    messages.append(called.model_dump())
    messages.append({"role": "tool", "tool_call_id": call.id, "content": "a town of 42 people"})
    told = said(service, messages, stream, tools=[TOOL])
    return [call.function.name, json.loads(call.function.arguments), told.content]


def everything(url: str) -> list[Any]:
    services: list[dict[str, Any]] = [
        {"model": "openai/toy", "api_base": url + "/v1", "api_key": "none"},
        {"model": "anthropic/toy", "api_base": url, "api_key": "none", "max_tokens": 500},
    ]
    return [
        part(service, f"{service['model']} {stream}", stream)
        for service in services
        for stream in (False, True)
        for part in (talk, tools)
    ]


json.dump([everything(url) for url in sys.argv[1:]], sys.stdout)
