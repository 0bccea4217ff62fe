"""Bodies of `/v1/responses` as the chat that they mean."""

from collections.abc import Mapping
from typing import Any, Final

from disaggpair_bed.simengine.apierrors import ApiError
from disaggpair_bed.simengine.textparts import joined_text

_SAME: Final = (
    "model",
    "stream",
    "temperature",
    "stop",
    "stop_token_ids",
    "ignore_eos",
    "cache_salt",
    "chat_template_kwargs",
    "kv_transfer_params",
    "request_id",
    "include_stop_str_in_output",
    "sim_tenant",
)


GIVEN: Final = "sim_given"
"""Field of the chat that has the body it was made of."""


def as_chat(body: object) -> dict[str, Any]:
    """The chat request that vLLM makes of it.

    Raises:
        ApiError: 400 or 404.
    """
    if not isinstance(body, Mapping):
        raise ApiError(400, "the body must be a JSON object")
    if (known := body.get("previous_response_id")) is not None:
        raise ApiError(
            404, f"Response with id '{known}' not found.", "invalid_request_error", "response_id"
        )
    if body.get("background"):
        raise ApiError(400, "This vLLM engine does not support `store=True`.", param="background")
    chat = {key: body[key] for key in _SAME if body.get(key) is not None}
    chat |= {"messages": _messages(body), GIVEN: body}
    if body.get("max_output_tokens") is not None:
        chat["max_completion_tokens"] = body["max_output_tokens"]
    if tools := body.get("tools"):
        chat["tools"] = [_nested(tool) for tool in tools]
    if (choice := body.get("tool_choice")) not in (None, "auto"):
        chat["tool_choice"] = _nested(choice) if isinstance(choice, Mapping) else choice
    effort = (body.get("reasoning") or {}).get("effort")
    if effort is not None:
        chat["reasoning_effort"] = effort
    form = (body.get("text") or {}).get("format")
    if form is not None:
        chat["response_format"] = form
    return chat


def _nested(tool: object) -> object:
    """A function with its fields in an object of their own, as chat has it."""
    if not isinstance(tool, Mapping) or tool.get("type") != "function":
        return tool
    return {
        "type": "function",
        "function": {key: value for key, value in tool.items() if key != "type"},
    }


def _messages(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    given = body.get("input")
    messages: list[dict[str, Any]] = []
    if body.get("instructions"):
        messages.append({"role": "system", "content": body["instructions"]})
    if isinstance(given, str):
        return [*messages, {"role": "user", "content": given}]
    if not isinstance(given, list):
        raise ApiError(400, "input: Field required", param="input")
    for item in given:
        if not isinstance(item, Mapping):
            raise ApiError(400, "input: Input should be a valid dictionary", param="input")
        _add(messages, item)
    return messages


def _add(messages: list[dict[str, Any]], item: Mapping[str, Any]) -> None:
    """Append an item, or let it join the assistant's message before it."""
    match item.get("type", "message"):
        case "message":
            content = item.get("content")
            text = content if isinstance(content, str) else joined_text(content, "input")
            _join(messages, item.get("role"), "content", text)
        case "reasoning":
            parts = item.get("content") or item.get("summary") or []
            _join(messages, "assistant", "reasoning", joined_text(parts[:1], "input"))
        case "function_call":
            function = {"name": item.get("name"), "arguments": item.get("arguments")}
            call = {"id": item.get("call_id"), "type": "function", "function": function}
            if messages and messages[-1]["role"] == "assistant":
                messages[-1].setdefault("tool_calls", []).append(call)
            else:
                messages.append({"role": "assistant", "tool_calls": [call]})
        case "function_call_output":
            output = {"role": "tool", "content": item.get("output")}
            messages.append({**output, "tool_call_id": item.get("call_id")})
        case other:
            raise ApiError(400, f"input: no item of type {other!r} is known", param="input")


def _join(messages: list[dict[str, Any]], role: object, key: str, value: str) -> None:
    last = messages[-1] if messages else {}
    if role == "assistant" == last.get("role") and last.get(key) is None:
        last[key] = value
    else:
        messages.append({"role": role, key: value})
