"""Answers of `/v1/responses`, streamed and whole, as vLLM 0.33 gives them."""

import time
from collections.abc import Sequence
from typing import Any

from disaggpair_bed.simengine import toolcalls
from disaggpair_bed.simengine.apierrors import ApiError
from disaggpair_bed.simengine.apireply import Choice
from disaggpair_bed.simengine.apirequest import Call
from disaggpair_bed.simengine.options import EngineOptions
from disaggpair_bed.simengine.responseitems import Item
from disaggpair_bed.simengine.responsesrequest import GIVEN
from disaggpair_bed.simengine.sequence import Delta
from disaggpair_bed.simengine.sse import event

_ECHOED: tuple[tuple[str, Any], ...] = (
    ("instructions", None),
    ("metadata", None),
    ("parallel_tool_calls", True),
    ("tool_choice", "auto"),
    ("tools", []),
    ("max_tool_calls", None),
    ("previous_response_id", None),
    ("prompt", None),
    ("reasoning", None),
    ("service_tier", "auto"),
    ("text", None),
    ("truncation", "disabled"),
    ("user", None),
)
"""Fields that a response has from its request, with their defaults."""


class ResponsesReply:
    """Shapes of one answer; the last event of a stream has the transfer parameters, too."""

    def __init__(self, call: Call, reply_id: str, options: EngineOptions) -> None:
        self._call = call
        self._id = reply_id
        self._created = int(time.time())
        self._sequence = 0
        self._item: Item | None = None
        self._items: list[Item] = []

    def opening(self, choice: Choice) -> bytes:
        """The response, still empty."""
        response = self._response([], None, "in_progress")
        return b"".join(
            self._event({"type": kind, "response": response})
            for kind in ("response.created", "response.in_progress")
        )

    def chunk(self, choice: Choice, delta: Delta) -> bytes:
        """Deltas of the item that a delta belongs to, which begins with it if need be."""
        made = self._added("reasoning", delta.thinking) if delta.thinking else b""
        if self._call.tool is None:
            return made + (self._added("message", delta.text) if delta.text else b"")
        called = self._item is not None and self._item.kind == "function_call"
        if called or toolcalls.is_first(choice.deltas):
            made += self._added("function_call", toolcalls.piece(choice.deltas))
        return made

    def ending(self, choices: Sequence[Choice]) -> bytes:
        """The end of the item, and the whole response."""
        status = _status(choices)
        made = self._close(status)
        response = self._response(choices, choices[0].last.params, status)
        return made + self._event({"type": f"response.{status}", "response": response})

    def broken(self, error: ApiError) -> bytes | None:
        """No event is there for it: vLLM fails to make one, and the connection breaks."""
        return None

    def whole(self, choices: Sequence[Choice], params: dict[str, Any] | None) -> dict[str, Any]:
        """A reply that is not streamed."""
        return self._response(choices, params, _status(choices))

    def _response(
        self, choices: Sequence[Choice], params: dict[str, Any] | None, status: str
    ) -> dict[str, Any]:
        call, given = self._call, self._call.body[GIVEN]
        is_cut = status == "incomplete"
        return {
            "id": self._id,
            "created_at": self._created,
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "model": call.model,
            "object": "response",
            "output": [item.done(status) for item in self._output(choices)],
            **{key: given.get(key) or default for key, default in _ECHOED},
            "temperature": given.get("temperature") or 1.0,
            "top_p": given.get("top_p") or 1.0,
            "background": False,
            "max_output_tokens": call.sampling.max_tokens,
            "status": status,
            "top_logprobs": None,
            "usage": self._usage(choices) if choices else None,
            "kv_transfer_params": params,
        }

    def _output(self, choices: Sequence[Choice]) -> list[Item]:
        """The items of a stream, or those that a whole answer is made of."""
        if self._items or not choices:
            return self._items
        (choice,) = choices
        items = [self._new("reasoning", choice.thinking)] if choice.thinking else []
        if self._call.tool is not None:
            items.append(self._new("function_call", toolcalls.arguments(choice.text)))
        elif choice.text or not items:
            items.append(self._new("message", choice.text))
        return items

    def _new(self, kind: str, text: str) -> Item:
        return Item(kind, f"{self._id}-{len(self._items)}-{kind}", self._call.tool or "", text)

    def _added(self, kind: str, text: str) -> bytes:
        made = b""
        if self._item is None or self._item.kind != kind:
            made = self._close("completed")
            self._item = self._new(kind, "")
            made += self._events(self._item.begun())
        return made + self._events([self._item.more(text)])

    def _close(self, status: str) -> bytes:
        if self._item is None:
            return b""
        item, self._item = self._item, None
        made = self._events(item.ended(status))
        self._items.append(item)
        return made

    def _events(self, bodies: Sequence[dict[str, Any]]) -> bytes:
        index = len(self._items)
        return b"".join(self._event({**body, "output_index": index}) for body in bodies)

    def _event(self, body: dict[str, Any]) -> bytes:
        numbered = {**body, "sequence_number": self._sequence}
        self._sequence += 1
        return event(numbered, body["type"])

    def _usage(self, choices: Sequence[Choice]) -> dict[str, Any]:
        prompt = sum(map(len, self._call.prompts))
        sampled = sum(len(choice.tokens) for choice in choices)
        cached = max(choice.last.cached_tokens for choice in choices)
        details = {"cached_tokens": cached, "cache_write_tokens": prompt - cached}
        return {
            "input_tokens": prompt,
            "input_tokens_details": {
                **details,
                "input_tokens_per_turn": [],
                "cached_tokens_per_turn": [],
            },
            "output_tokens": sampled,
            "output_tokens_details": {
                "reasoning_tokens": 0,
                "tool_output_tokens": 0,
                "output_tokens_per_turn": [],
                "tool_output_tokens_per_turn": [],
            },
            "total_tokens": prompt + sampled,
        }


def _status(choices: Sequence[Choice]) -> str:
    return "incomplete" if choices[0].last.finish_reason == "length" else "completed"
