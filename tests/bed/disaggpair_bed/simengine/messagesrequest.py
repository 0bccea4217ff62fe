"""Bodies of `/v1/messages` as the chat that they mean."""

import json
from collections.abc import Mapping
from typing import Any, Final

from disaggpair_bed.simengine.apierrors import BodyError
from disaggpair_bed.simengine.textparts import joined_text

_SAME: Final = (
    "model",
    "temperature",
    "cache_salt",
    "kv_transfer_params",
    "chat_template_kwargs",
    "sim_tenant",
)
_BILLING: Final = "x-anthropic-billing-header"
"""A part of the system prompt that begins so is left out, as in vLLM."""

_CHOICES: Final = {"auto": "auto", "any": "required", "none": "none"}


def as_chat(body: object) -> dict[str, Any]:
    """The chat request that vLLM makes of it.

    Raises:
        BodyError: 400.
    """
    if not isinstance(body, Mapping):
        raise BodyError(400, "the body must be a JSON object")
    limit = body.get("max_tokens")
    if not body.get("model"):
        raise BodyError(400, "model: Field required", param="model")
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise BodyError(400, "max_tokens must be positive", param="max_tokens")
    chat = {key: body[key] for key in _SAME if body.get(key) is not None}
    chat |= {"max_tokens": limit, "max_completion_tokens": limit, "messages": _messages(body)}
    if body.get("stream"):
        chat |= {"stream": True, "stream_options": {"include_usage": True}}
    if body.get("stop_sequences"):
        chat["stop"] = body["stop_sequences"]
    if tools := body.get("tools"):
        chat["tools"] = [_function(tool) for tool in tools]
    if choice := body.get("tool_choice"):
        chat["tool_choice"] = _choice(choice)
    return chat


def _function(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = {
        "name": tool.get("name"),
        "description": tool.get("description"),
        "parameters": tool.get("input_schema"),
    }
    return {"type": "function", "function": function}


def _choice(choice: Mapping[str, Any]) -> object:
    if choice.get("type") == "tool":
        return {"type": "function", "function": {"name": choice.get("name")}}
    return _CHOICES.get(str(choice.get("type")), "auto")


def _messages(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    given = body.get("messages")
    if not isinstance(given, list):
        raise BodyError(400, "messages: Field required", param="messages")
    system = body.get("system")
    if isinstance(system, list):
        parts = [part for part in system if not str(part.get("text")).startswith(_BILLING)]
        system = joined_text(parts, "system")
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    for message in given:
        if not isinstance(message, Mapping):
            raise BodyError(400, "messages: Input should be a valid dictionary", param="messages")
        messages += _converted(message)
    return messages


def _converted(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Results of tools in messages of their own, before the rest."""
    role, content = message.get("role"), message.get("content")
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    if not isinstance(content, list):
        raise BodyError(400, "messages: content is text or a list of blocks", param="messages")
    results = [block for block in content if block.get("type") == "tool_result"]
    rest = [block for block in content if block.get("type") != "tool_result"]
    made = [_result(block) for block in results]
    if rest or role != "user":
        made.append({"role": role, **_blocks(rest)})
    return made


def _result(block: Mapping[str, Any]) -> dict[str, Any]:
    content = block.get("content") or ""
    text = content if isinstance(content, str) else joined_text(content, "messages")
    return {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": text}


def _blocks(blocks: list[Mapping[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for block in blocks:
        match block.get("type"):
            case "text":
                made["content"] = made.get("content", "") + str(block.get("text"))
            case "thinking":
                made["reasoning"] = made.get("reasoning", "") + str(block.get("thinking"))
            case "tool_use":
                arguments = json.dumps(block.get("input") or {})
                function = {"name": block.get("name"), "arguments": arguments}
                call = {"id": block.get("id"), "type": "function", "function": function}
                made.setdefault("tool_calls", []).append(call)
            case "redacted_thinking":
                pass
            case other:
                raise BodyError(400, f"messages: no block of type {other!r} is known")
    return made
