"""Answers of `/v1/messages`, streamed and whole, as vLLM 0.33 makes them of a chat's."""

from collections.abc import Sequence
from typing import Any

import orjson

from disaggpair_bed.simengine import toolcalls
from disaggpair_bed.simengine.apierrors import ApiError, as_anthropic
from disaggpair_bed.simengine.apireply import Choice
from disaggpair_bed.simengine.apirequest import Call
from disaggpair_bed.simengine.options import EngineOptions
from disaggpair_bed.simengine.sequence import Delta
from disaggpair_bed.simengine.sse import event

_DELTAS = {
    "text": ("text_delta", "text"),
    "thinking": ("thinking_delta", "thinking"),
    "tool_use": ("input_json_delta", "partial_json"),
}


class MessagesReply:
    """Shapes of one answer; a stream never carries transfer parameters."""

    def __init__(self, call: Call, reply_id: str, options: EngineOptions) -> None:
        self._call = call
        self._id = reply_id
        self._details = options.prompt_tokens_details
        self._block = ""
        self._index = 0

    def opening(self, choice: Choice) -> bytes:
        """The message, still empty."""
        return _event(
            "message_start",
            message={
                **self._head(),
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": self._usage([]),
            },
        )

    def chunk(self, choice: Choice, delta: Delta) -> bytes:
        """Deltas of the block that a delta belongs to, which begins with it if need be."""
        made = self._added("thinking", delta.thinking, {"thinking": ""}) if delta.thinking else b""
        if self._call.tool is not None:
            text = toolcalls.piece(choice.deltas) if self._has_begun(choice) else ""
            start = {"id": self._tool_id(choice), "name": self._call.tool, "input": {}}
            return made + (self._added("tool_use", text, start) if text else b"")
        return made + (self._added("text", delta.text, {"text": ""}) if delta.text else b"")

    def ending(self, choices: Sequence[Choice]) -> bytes:
        """The end of the block and of the message."""
        (choice,) = choices
        reason, sequence = self._stop(choice)
        delta = {"stop_reason": reason, "stop_sequence": sequence}
        return (
            self._close()
            + _event("message_delta", delta=delta, usage=self._usage(choices))
            + _event("message_stop")
        )

    def broken(self, error: ApiError) -> bytes | None:
        """An error event."""
        return self._close() + event(as_anthropic(error).body(), "error")

    def whole(self, choices: Sequence[Choice], params: dict[str, Any] | None) -> dict[str, Any]:
        """A reply that is not streamed."""
        (choice,) = choices
        reason, sequence = self._stop(choice)
        body = {
            **self._head(),
            "content": self._blocks(choice),
            "stop_reason": reason,
            "stop_sequence": sequence,
            "usage": self._usage(choices),
            "kv_transfer_params": params,
        }
        return {key: value for key, value in body.items() if value is not None}

    def _head(self) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._call.model,
        }

    def _blocks(self, choice: Choice) -> list[dict[str, Any]]:
        blocks: list[dict[str, Any]] = []
        if choice.thinking:
            blocks.append({"type": "thinking", "thinking": choice.thinking, "signature": self._id})
        if self._call.tool is not None:
            called = orjson.loads(toolcalls.arguments(choice.text))
            start = {"type": "tool_use", "id": self._tool_id(choice), "name": self._call.tool}
            blocks.append({**start, "input": called})
        elif choice.text or not blocks:
            blocks.append({"type": "text", "text": choice.text})
        return blocks

    def _tool_id(self, choice: Choice) -> str:
        return f"call-{self._id}-{choice.index}"

    def _has_begun(self, choice: Choice) -> bool:
        return self._block == "tool_use" or toolcalls.is_first(choice.deltas)

    def _added(self, kind: str, text: str, start: dict[str, Any]) -> bytes:
        made = b""
        if self._block != kind:
            made = self._close()
            self._block = kind
            block = {"type": kind, **start}
            made += _event("content_block_start", index=self._index, content_block=block)
        name, key = _DELTAS[kind]
        delta = {"type": name, key: text}
        return made + _event("content_block_delta", index=self._index, delta=delta)

    def _close(self) -> bytes:
        if not self._block:
            return b""
        made = b""
        if self._block == "thinking":
            delta = {"type": "signature_delta", "signature": self._id}
            made = _event("content_block_delta", index=self._index, delta=delta)
        made += _event("content_block_stop", index=self._index)
        self._block = ""
        self._index += 1
        return made

    def _stop(self, choice: Choice) -> tuple[str | None, str | None]:
        """Stop reason and stop sequence."""
        last = choice.last
        if last.finish_reason == "length":
            return "max_tokens", None
        if last.finish_reason != "stop":
            return None, None
        if self._call.tool is not None:
            return "tool_use", None
        if isinstance(last.stop_reason, str):
            return "stop_sequence", last.stop_reason
        return "end_turn", None

    def _usage(self, choices: Sequence[Choice]) -> dict[str, Any]:
        prompt = sum(map(len, self._call.prompts))
        usage = {"input_tokens": prompt, "output_tokens": sum(len(one.tokens) for one in choices)}
        if self._details and choices:
            cached = choices[0].last.cached_tokens
            usage |= {"input_tokens": prompt - cached, "cache_read_input_tokens": cached}
        return usage


def _event(name: str, **fields: Any) -> bytes:
    return event({"type": name, **fields}, name)
