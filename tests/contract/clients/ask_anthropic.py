"""The anthropic package: messages and tools, plain and streamed."""

import json
import sys
from typing import Any

from anthropic import Anthropic

RIVER = "Tell me of the river and of all the towns that lie on it, one after the other. " * 4
TOOL: dict[str, Any] = {
    "name": "look_up",
    "description": "Looks a town up.",
    "input_schema": {"type": "object", "properties": {"answer": {"type": "string"}}},
}


def said(client: Anthropic, messages: list[Any], stream: bool, **more: Any) -> Any:
    """One turn's message, as the package gives it."""
    given: dict[str, Any] = {"model": "toy", "max_tokens": 500, "messages": messages, **more}
    if not stream:
        return client.messages.create(**given)
    with client.messages.stream(**given) as events:
        for _ in events.text_stream:
            pass
        return events.get_final_message()


def talk(client: Anthropic, stream: bool) -> list[str]:
    messages: list[Any] = []
    texts = []
    for turn in range(3):
        # A mark for a cache that moves along with the newest message, as agents set it.
        block = {"type": "text", "text": f"talk {stream} {turn} {RIVER}"}
        marked = {**block, "cache_control": {"type": "ephemeral"}}
        newest = {"role": "user", "content": [marked]}
        reply = said(client, [*messages, newest], stream, system="Be brief.")
        messages += [{"role": "user", "content": [block]}]
        messages.append({"role": "assistant", "content": reply.content})
        texts.append(reply.content[0].text)
    return texts


def tools(client: Anthropic, stream: bool) -> list[Any]:
    messages: list[Any] = [{"role": "user", "content": f"tools {stream} {RIVER} #call"}]
    called = said(client, messages, stream, tools=[TOOL])
    use = called.content[-1]
    result = {"type": "tool_result", "tool_use_id": use.id, "content": "a town of 42 people"}
    messages.append({"role": "assistant", "content": called.content})
    messages.append({"role": "user", "content": [result]})
    told = said(client, messages, stream, tools=[TOOL])
    return [called.stop_reason, use.name, use.input, told.content[0].text]


def everything(url: str) -> list[Any]:
    client = Anthropic(base_url=url, api_key="none", max_retries=0)
    both = (False, True)
    return [*(talk(client, stream) for stream in both), *(tools(client, one) for one in both)]


json.dump([everything(url) for url in sys.argv[1:]], sys.stdout)
