"""Messages of Anthropic's API as the chat messages that engines make of them. Pure.

For comparison only: two histories that read the same here render to the same prompt (vLLM 0.31 to
0.33). What clients change from turn to turn without an effect on the prompt is left out: marks for
a cache, signatures, the header of a client's accounting.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson

from disaggpair_router.answer import Answer
from disaggpair_router.kv import Json

_ACCOUNTING: Final = "x-anthropic-billing-header"
"""A text that begins so is no part of the prompt."""
_TEXTUAL: Final = frozenset({"text", "thinking", "redacted_thinking", "tool_use", "tool_result"})
"""Blocks whose content is in the request itself."""


def messages_of(body: Mapping[str, Any]) -> list[Json] | None:
    """The history of a request, the system prompt first; None when it is malformed."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(item, dict) for item in messages):
        return None
    system = _system(body.get("system"))
    begins: list[Json] = [{"role": "system", "content": system}] if system else []
    return begins + [_message(item) for item in messages]


def has_other_blocks(body: Mapping[str, Any]) -> bool:
    """Whether a message has a block that is not text, whose content may change behind it."""
    return any(
        not isinstance(block, dict) or block.get("type") not in _TEXTUAL
        for message in body["messages"]
        for block in _inner_blocks(message.get("content"))
    )


def answer_of_blocks(blocks: Iterable[Mapping[str, Any]]) -> Answer:
    """What an assistant's blocks say."""
    answer = Answer()
    for block in blocks:
        kind = block.get("type")
        if kind == "text":
            answer.text += _text(block.get("text"))
        elif kind == "thinking":
            answer.reasoning += _text(block.get("thinking"))
        elif kind == "tool_use":
            answer.tool_calls.append(tool_call(block))
    return answer


def tool_call(block: Mapping[str, Any]) -> Json:
    """A call as chat has it; the arguments in an order of their own, since engines parse them."""
    arguments = orjson.dumps(block.get("input") or {}, option=orjson.OPT_SORT_KEYS)
    return {
        "id": block.get("id"),
        "type": "function",
        "function": {"name": block.get("name"), "arguments": arguments.decode()},
    }


def _message(message: Mapping[str, Any]) -> Json:
    role, content = message.get("role"), message.get("content")
    if not isinstance(content, list):
        return {"role": role, "content": content}
    if role == "assistant" and _is_plain(content):
        return answer_of_blocks(content).message()
    blocks = [_without_marks(block) for block in content]
    if len(blocks) == 1 and isinstance(blocks[0], dict) and set(blocks[0]) == {"type", "text"}:
        return {"role": role, "content": blocks[0]["text"]}
    return {"role": role, "content": blocks}


def _is_plain(blocks: list[Any]) -> bool:
    """Whether an answer's text is one piece: two are not rendered as their sum."""
    kinds = [block.get("type") if isinstance(block, dict) else None for block in blocks]
    known = {"text", "thinking", "tool_use"}
    return all(kind in known for kind in kinds) and kinds.count("text") <= 1


def _without_marks(value: object) -> object:
    if isinstance(value, list):
        return [_without_marks(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _without_marks(item) if key == "content" else item
        for key, item in value.items()
        if item is not None and key not in ("cache_control", "signature")
    }


def _system(system: object) -> str:
    """The system prompt as one text, which it is in the chat."""
    if isinstance(system, str):
        return system
    if not isinstance(system, list):
        return ""
    texts = (_text(block.get("text")) for block in system if isinstance(block, dict))
    return "".join(text for text in texts if not text.startswith(_ACCOUNTING))


def _inner_blocks(content: object) -> Iterable[Any]:
    """The blocks of a message, those inside a tool's result included."""
    for block in content if isinstance(content, list) else ():
        yield block
        if isinstance(block, dict) and block.get("type") == "tool_result":
            yield from _inner_blocks(block.get("content"))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
