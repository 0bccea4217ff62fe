"""What D said: put together from a stream's chunks or a whole answer, and streamed on. Pure.

The conversation table needs the answer to recognise it in the next turn's history. `as_events`
serves clients that stream from engines whose streams carry no handle.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

Json = dict[str, Any]

_CHOICE_FIELDS = ("index", "message", "text", "finish_reason", "stop_reason")

DONE = b"data: [DONE]\n\n"


@dataclass(slots=True)
class Answer:
    """The first choice of a completion."""

    text: str = ""
    reasoning: str = ""
    tool_calls: list[Json] = field(default_factory=list)

    def message(self, *, reasoning: bool = True) -> Json:
        """The assistant message as a client that keeps everything sends it back."""
        message: Json = {"role": "assistant", "content": self.text}
        if self.reasoning and reasoning:
            message["reasoning"] = self.reasoning
        if self.tool_calls:
            message["tool_calls"] = self.tool_calls
        return message


def answer_of(body: Mapping[str, Any]) -> Answer:
    """The answer inside a whole completion of either API; empty for an unknown shape."""
    choice = _first_choice(body)
    message = _mapping(choice.get("message"))
    if not message:
        return Answer(text=_text(choice.get("text")))
    calls = message.get("tool_calls")
    return Answer(
        text=_text(message.get("content")),
        reasoning=_text(message.get("reasoning")) or _text(message.get("reasoning_content")),
        tool_calls=[call for call in calls if isinstance(call, dict)] if calls else [],
    )


def answer_from_chunks(chunks: Iterable[Mapping[str, Any]]) -> Answer:
    """The answer that the chunks of one stream, of either API, add up to."""
    texts: list[str] = []
    reasonings: list[str] = []
    calls: dict[int, Json] = {}
    for chunk in chunks:
        choice = _first_choice(chunk)
        delta = _mapping(choice.get("delta"))
        texts.append(_text(delta.get("content")) or _text(choice.get("text")))
        reasonings.append(_text(delta.get("reasoning")) or _text(delta.get("reasoning_content")))
        for part in delta.get("tool_calls") or ():
            _add_call(calls, part)
    return Answer("".join(texts), "".join(reasonings), [calls[index] for index in sorted(calls)])


def as_events(body: Mapping[str, Any], *, include_usage: bool) -> Iterator[bytes]:
    """A whole completion as the events of a stream, the end marker included.

    Fields that are not known here go with the chunks they belong to, unless they are empty.
    """
    chat = body.get("object") == "chat.completion"
    head = _others(body, "object", "choices", "usage")
    head["object"] = "chat.completion.chunk" if chat else "text_completion"
    for choice in filter(_mapping, body.get("choices") or ()):
        for part in _chat_parts(choice) if chat else _text_parts(choice):
            yield _event({**head, "choices": [{"index": choice.get("index", 0), **part}]})
    if include_usage and body.get("usage") is not None:
        yield _event({**head, "choices": [], "usage": body["usage"]})
    yield DONE


def _chat_parts(choice: Json) -> Iterator[Json]:
    message = _mapping(choice.get("message"))
    yield _delta({"role": message.get("role", "assistant"), "content": ""})
    for key, value in _others(message, "role", "content", "tool_calls").items():
        yield _delta({key: value})
    if message.get("content"):
        yield _delta({"content": message["content"]}) | _others(choice, *_CHOICE_FIELDS)
    calls = message.get("tool_calls")
    if calls:
        yield _delta({"tool_calls": [{"index": at, **call} for at, call in enumerate(calls)]})
    yield _delta({}, choice.get("finish_reason")) | _stop_reason(choice)


def _text_parts(choice: Json) -> Iterator[Json]:
    text = {"text": choice.get("text", ""), "logprobs": None, "finish_reason": None}
    yield text | _others(choice, *_CHOICE_FIELDS)
    ending = {"text": "", "logprobs": None, "finish_reason": choice.get("finish_reason")}
    yield ending | _stop_reason(choice)


def _delta(delta: Json, finish_reason: object = None) -> Json:
    return {"delta": delta, "finish_reason": finish_reason}


def _stop_reason(choice: Json) -> Json:
    return {"stop_reason": choice["stop_reason"]} if "stop_reason" in choice else {}


def _others(fields: Mapping[str, Any], *known: str) -> Json:
    return {
        key: value
        for key, value in fields.items()
        if key not in known and value is not None and value != []
    }


def _event(chunk: Json) -> bytes:
    return b"data: " + orjson.dumps(chunk) + b"\n\n"


def _add_call(calls: dict[int, Json], part: object) -> None:
    fields = _mapping(part)
    index = fields.get("index", 0)
    call = calls.setdefault(
        index if isinstance(index, int) else 0,
        {"id": None, "type": "function", "function": {"name": "", "arguments": ""}},
    )
    call["id"] = fields.get("id") or call["id"]
    function = _mapping(fields.get("function"))
    # The name comes whole in one chunk, the arguments in pieces.
    call["function"]["name"] = function.get("name") or call["function"]["name"]
    call["function"]["arguments"] += _text(function.get("arguments"))


def _first_choice(body: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = body.get("choices")
    return _mapping(choices[0]) if isinstance(choices, list) and choices else {}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
