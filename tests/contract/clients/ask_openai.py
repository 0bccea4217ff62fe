"""The openai package: chat, tools and responses, plain and streamed."""

import json
import sys
from typing import Any

from openai import OpenAI

RIVER = "Tell me of the river and of all the towns that lie on it, one after the other. " * 4
FUNCTION: dict[str, Any] = {
    "name": "look_up",
    "description": "Looks a town up.",
    "parameters": {"type": "object", "properties": {"answer": {"type": "string"}}},
}


def said(client: OpenAI, messages: list[Any], stream: bool, **more: Any) -> Any:
    """The message of one turn, as the package gives it."""
    if not stream:
        reply = client.chat.completions.create(model="toy", messages=messages, **more)
        return reply.choices[0].message
    with client.chat.completions.stream(model="toy", messages=messages, **more) as events:
        for _ in events:
            pass
        return events.get_final_completion().choices[0].message


def chat(client: OpenAI, stream: bool) -> list[str]:
    messages: list[Any] = []
    for turn in range(3):
        messages.append({"role": "user", "content": f"chat {stream} {turn} {RIVER}"})
        messages.append(said(client, messages, stream))
    return [message.content for message in messages[1::2]]


def tools(client: OpenAI, stream: bool) -> list[str]:
    more = {"tools": [{"type": "function", "function": FUNCTION}]}
    messages: list[Any] = [{"role": "user", "content": f"tools {stream} {RIVER} #call"}]
    called = said(client, messages, stream, **more)
    (call,) = called.tool_calls
    messages.append(called)
    messages.append({"role": "tool", "tool_call_id": call.id, "content": "a town of 42 people"})
    told = said(client, messages, stream, **more)
    return [call.function.name, call.function.arguments, told.content]


def responses(client: OpenAI, stream: bool) -> list[str]:
    items: list[Any] = []
    texts = []
    for turn in range(3):
        items.append({"role": "user", "content": f"responses {stream} {turn} {RIVER}"})
        response: Any
        if stream:
            with client.responses.stream(model="toy", input=items) as events:
                for _ in events:
                    pass
                response = events.get_final_response()
        else:
            response = client.responses.create(model="toy", input=items)
        items += response.output
        texts.append(response.output_text)
    return texts


def response_tools(client: OpenAI) -> list[str]:
    given: Any = [{"type": "function", **FUNCTION}]
    items: list[Any] = [{"role": "user", "content": f"response tools {RIVER} #call"}]
    response = client.responses.create(model="toy", input=items, tools=given)
    call: Any = response.output[-1]
    items += response.output
    items.append({"type": "function_call_output", "call_id": call.call_id, "output": "42"})
    response = client.responses.create(model="toy", input=items, tools=given)
    return [call.name, call.arguments, response.output_text]


def everything(url: str) -> list[Any]:
    client = OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
    both = (False, True)
    return [
        *(chat(client, stream) for stream in both),
        *(tools(client, stream) for stream in both),
        *(responses(client, stream) for stream in both),
        response_tools(client),
    ]


json.dump([everything(url) for url in sys.argv[1:]], sys.stdout)
