"""Anthropic's messages API. Pure.

A stream of it never tells of D's handle (vLLM 0.31 to 0.33). D would keep blocks that nobody can
find, so with handles a stream is for one engine; leases are found without the answer.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson

from disaggpair_router.answer import Answer
from disaggpair_router.apis.blocks import answer_of_blocks, has_other_blocks, messages_of
from disaggpair_router.apis.shape import Ending, Learned
from disaggpair_router.errors import RouterError
from disaggpair_router.history import ChatHistory, History
from disaggpair_router.kv import Json

_ENDINGS: Final = frozenset({"end_turn", "max_tokens", "stop_sequence", "tool_use"})
_MATTERS: Final = re.compile(rb'"type"\s*:\s*"(?:message_start|message_delta|message_stop|error)"')
_KINDS: Final[Mapping[int, str]] = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
"""`error.type` by status, as Anthropic's clients tell errors apart."""
_STATUSES: Final = {kind: status for status, kind in _KINDS.items()}
_DELTAS: Final = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "input_json_delta": "partial_json",
}
"""The text of each kind of delta."""


class MessageStream:
    """Events with names, of blocks that begin, grow and end; see `StreamShape`."""

    endings = _ENDINGS
    matters = _MATTERS
    has_params_in_chunks = False

    def params_place(self, chunk: Json) -> Json | None:
        """See `StreamShape`."""
        return chunk

    def learn(self, chunk: Mapping[str, Any], learned: Learned) -> None:
        """See `StreamShape`."""
        kind = chunk.get("type")
        if kind == "error":
            error = _mapping(chunk.get("error"))
            learned.error = {**error, "code": _STATUSES.get(str(error.get("type")))}
        elif kind == "message_stop":
            learned.done = True
        elif kind in ("message_start", "message_delta"):
            usage = (_mapping(chunk.get("message")) or chunk).get("usage")
            learned.usage = usage if isinstance(usage, dict) else learned.usage
            reason = _mapping(chunk.get("delta")).get("stop_reason")
            learned.finish_reason = reason if isinstance(reason, str) else learned.finish_reason

    def has_answer(self, data: bytes) -> bool:
        """See `StreamShape`."""
        return b"content_block_" in data

    def answer(self, chunks: Iterable[Mapping[str, Any]]) -> Answer:
        """See `StreamShape`."""
        blocks: dict[object, dict[str, Any]] = {}
        for chunk in chunks:
            index, begun = chunk.get("index"), chunk.get("content_block")
            if isinstance(begun, dict):
                blocks[index] = {**begun, "pieces": []}
            delta = _mapping(chunk.get("delta"))
            piece = delta.get(_DELTAS.get(str(delta.get("type")), ""))
            if index in blocks and isinstance(piece, str):
                blocks[index]["pieces"].append(piece)
        return answer_of_blocks(_grown(block) for block in blocks.values())


class Messages:
    """`/v1/messages`; see `Shape`."""

    path = "/v1/messages"
    stream = MessageStream()
    tells_in_stream = False
    not_in_scope = frozenset({"system", "stop_sequences"})

    def edited(self, body: Json) -> Json:
        """See `Shape`."""
        return body

    def must_run_alone(self, body: Mapping[str, Any]) -> bool:
        """See `Shape`: engines parse the arguments of a call that they were told to make.

        P makes one token, which are no arguments, and would answer with an error.
        """
        return _mapping(body.get("tool_choice")).get("type") == "tool"

    def is_comparable(self, body: Mapping[str, Any]) -> bool:
        """See `Shape`.

        Messages of the system further down can be moved to the top by engines, and so can tools
        that they add. An answer that continues the last message has no frame of its own.
        """
        messages = body.get("messages")
        given = messages if isinstance(messages, list) else []
        roles = [_mapping(message).get("role") for message in given]
        return "system" not in roles and roles[-1:] != ["assistant"]

    def history(self, body: Mapping[str, Any], *, verified: bool) -> History | None:
        """See `Shape`."""
        messages = messages_of(body)
        if messages is None or not (verified or not has_other_blocks(body)):
            return None
        return ChatHistory(messages)

    def ending(self, body: Mapping[str, Any]) -> Ending:
        """See `Shape`."""
        blocks = body.get("content")
        found = filter(_mapping, blocks if isinstance(blocks, list) else ())
        return Ending(answer_of_blocks(found), is_clean=body.get("stop_reason") in _ENDINGS)

    def error_body(self, error: Exception, request_id: str) -> bytes:
        """See `Shape`."""
        known = error if isinstance(error, RouterError) else RouterError(_UNKNOWN)
        kind = _KINDS.get(known.status)
        if kind is None:
            kind = "api_error" if known.status >= 500 else "invalid_request_error"
        shown = {"type": kind, "message": known.message}
        return orjson.dumps({"type": "error", "error": shown, "request_id": request_id})

    def error_event(self, error: Exception, request_id: str, sent: bytes) -> bytes:
        """See `Shape`."""
        return b"event: error\ndata: " + self.error_body(error, request_id) + b"\n\n"


_UNKNOWN: Final = "The router failed to serve the request."


def _grown(block: Mapping[str, Any]) -> Mapping[str, Any]:
    """A block with what its deltas have added."""
    text = "".join(block["pieces"])
    if block.get("type") != "tool_use":
        kind = str(block.get("type"))
        return {**block, kind: str(block.get(kind) or "") + text}
    try:
        return {**block, "input": orjson.loads(text or b"{}")}
    except orjson.JSONDecodeError:
        return {**block, "input": text}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
