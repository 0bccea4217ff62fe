"""Items of OpenAI's responses API as the chat messages that engines make of them. Pure.

For comparison only: two histories that read the same here render to the same prompt (vLLM 0.31 to
0.33). Ids, states and notes of items are left out; several items of one answer are one message.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from disaggpair_router.answer import Answer
from disaggpair_router.kv import Json

_TEXTS: Final = frozenset({"input_text", "output_text", "text"})
_KNOWN: Final = frozenset({"message", "reasoning", "function_call", "function_call_output"})
_NOTES: Final = ("id", "status", "annotations", "logprobs")
"""What the prompt has nothing of."""


def messages_of(body: Mapping[str, Any]) -> list[Json] | None:
    """The history of a request, the instructions first; None when it is malformed."""
    given, instructions = body.get("input"), body.get("instructions")
    messages: list[Json] = []
    if instructions:
        messages.append({"role": "system", "content": instructions})
    if isinstance(given, str):
        return [*messages, {"role": "user", "content": given}]
    if not isinstance(given, list) or not all(isinstance(item, dict) for item in given):
        return None
    for item in given:
        _add(messages, item)
    return messages


def has_other_items(body: Mapping[str, Any]) -> bool:
    """Whether an item has content that is not text, or is of a kind that is not known here."""
    given = body.get("input")
    return isinstance(given, list) and any(map(_is_other, given))


def answer_of_items(items: Iterable[Mapping[str, Any]]) -> Answer:
    """What the items of an answer say."""
    messages: list[Json] = []
    for item in items:
        _add(messages, item)
    last = messages[-1] if messages else {}
    text, reasoning = last.get("content"), last.get("reasoning")
    return Answer(
        text if isinstance(text, str) else "",
        reasoning if isinstance(reasoning, str) else "",
        last.get("tool_calls") or [],
    )


def _add(messages: list[Json], item: Mapping[str, Any]) -> None:
    """Append an item, or let it join the assistant's message before it."""
    kind = _kind(item)
    if kind == "message":
        _join(messages, item.get("role"), "content", _content(item.get("content")))
    elif kind == "reasoning":
        _join(messages, "assistant", "reasoning", _reasoning(item))
    elif kind == "function_call":
        call = _call(item)
        if messages and messages[-1].get("role") == "assistant":
            messages[-1].setdefault("tool_calls", []).append(call)
        else:
            messages.append({"role": "assistant", "tool_calls": [call]})
    elif kind == "function_call_output":
        result = {"role": "tool", "tool_call_id": item.get("call_id")}
        messages.append({**result, "content": item.get("output")})
    else:
        messages.append({"role": "item", "item": item})


def _join(messages: list[Json], role: object, key: str, value: object) -> None:
    last = messages[-1] if messages else {}
    if role == "assistant" and last.get("role") == "assistant" and last.get(key) is None:
        last[key] = value
    else:
        messages.append({"role": role, key: value})


def _call(item: Mapping[str, Any]) -> Json:
    function = {"name": item.get("name"), "arguments": item.get("arguments")}
    if item.get("namespace"):
        function["namespace"] = item["namespace"]
    return {"id": item.get("call_id"), "type": "function", "function": function}


def _reasoning(item: Mapping[str, Any]) -> object:
    for parts in (item.get("content"), item.get("summary")):
        if isinstance(parts, list) and parts and isinstance(parts[0], dict):
            return parts[0].get("text")
    return item.get("encrypted_content")


def _content(content: object) -> object:
    """Texts without notes; of one part only its text."""
    if not isinstance(content, list):
        return content
    parts = [_without_notes(part) for part in content]
    if len(parts) == 1 and isinstance(parts[0], dict) and set(parts[0]) == {"type", "text"}:
        return parts[0]["text"]
    return parts


def _without_notes(part: object) -> object:
    if not isinstance(part, dict):
        return part
    return {key: value for key, value in part.items() if key not in _NOTES and value is not None}


def _kind(item: Mapping[str, Any]) -> object:
    # A message may leave its type out.
    return item.get("type", "message")


def _is_other(item: object) -> bool:
    if not isinstance(item, dict) or _kind(item) not in _KNOWN:
        return True
    content = item.get("output" if _kind(item) == "function_call_output" else "content")
    if not isinstance(content, list) or _kind(item) == "reasoning":
        return False
    return any(not isinstance(part, dict) or part.get("type") not in _TEXTS for part in content)
