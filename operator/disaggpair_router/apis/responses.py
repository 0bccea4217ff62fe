"""OpenAI's responses API. Pure.

Its state (stored responses, runs in the background, conversations) would live in one engine's
process, which no other engine and no other turn can reach. So nothing is stored, and a request
that builds on stored things is refused.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson

from disaggpair_router.answer import Answer
from disaggpair_router.apis.items import answer_of_items, has_other_items, messages_of
from disaggpair_router.apis.shape import Ending, Learned
from disaggpair_router.errors import BadRequest, error_body
from disaggpair_router.history import ChatHistory, History
from disaggpair_router.kv import Json

_ENDINGS: Final = frozenset({"completed", "incomplete"})
_LAST: Final = frozenset(f"response.{end}" for end in ("completed", "incomplete", "failed"))
_MATTERS: Final = re.compile(rb'"type"\s*:\s*"(?:response\.(?:completed|incomplete|failed)|error)"')
_NUMBER: Final = re.compile(rb'"sequence_number"\s*:\s*(\d+)')
_OWN_TOOLS: Final = frozenset({"function", "custom"})
"""Kinds of tools that the client runs itself."""
_STATEFUL: Final[Mapping[str, str]] = {
    "previous_response_id": "send the earlier items as input",
    "conversation": "send the earlier items as input",
    "background": "wait for the answer, or stream it",
}
"""Fields that need state of an engine's, and what to do instead."""


class ResponseStream:
    """Events with names and numbers, whose last one has the whole response; see `StreamShape`."""

    endings = _ENDINGS
    matters = _MATTERS
    has_params_in_chunks = False

    def params_place(self, chunk: Json) -> Json | None:
        """See `StreamShape`."""
        response = chunk.get("response")
        return response if isinstance(response, dict) else None

    def learn(self, chunk: Mapping[str, Any], learned: Learned) -> None:
        """See `StreamShape`."""
        kind = chunk.get("type")
        if kind == "error":
            error = chunk.get("error")
            learned.error = error if isinstance(error, dict) else chunk
        elif kind in _LAST:
            response = _mapping(chunk.get("response"))
            status, usage = response.get("status"), response.get("usage")
            learned.finish_reason = status if isinstance(status, str) else None
            learned.usage = usage if isinstance(usage, dict) else None
            learned.done = True
            if kind == "response.failed":
                learned.error = _mapping(response.get("error"))

    def has_answer(self, data: bytes) -> bool:
        """See `StreamShape`."""
        return _MATTERS.search(data) is not None

    def answer(self, chunks: Iterable[Mapping[str, Any]]) -> Answer:
        """See `StreamShape`."""
        last = next((chunk for chunk in chunks if chunk.get("type") in _LAST), {})
        return _answer(_mapping(last.get("response")))


class Responses:
    """`/v1/responses`; see `Shape`."""

    path = "/v1/responses"
    stream = ResponseStream()
    tells_in_stream = True
    not_in_scope = frozenset(
        {
            "input",
            "instructions",
            "max_output_tokens",
            "max_tool_calls",
            "include",
            "background",
            "previous_response_id",
            "conversation",
            "prompt_cache_options",
            "prompt_cache_retention",
        }
    )

    def edited(self, body: Json) -> Json:
        """See `Shape`: nothing is stored. An engine would keep it for nobody, and for ever."""
        for key, instead in _STATEFUL.items():
            if body.get(key):
                raise BadRequest(f"{key} is not offered, since nothing is stored: {instead}.")
        return {**body, "store": False}

    def must_run_alone(self, body: Mapping[str, Any]) -> bool:
        """See `Shape`.

        Tools of the engine's own make several requests with one set of parameters. A cut prompt
        is cut by the length of the answer, which differs between the legs; null means a cut, too.
        """
        tools = body.get("tools")
        others = isinstance(tools, list) and not all(map(_is_clients_own, tools))
        return others or body.get("truncation", "disabled") != "disabled"

    def is_comparable(self, body: Mapping[str, Any]) -> bool:
        """See `Shape`: an answer that continues the last item has no frame of its own."""
        given = body.get("input")
        last = _mapping(given[-1]) if isinstance(given, list) and given else {}
        return last.get("status") not in ("in_progress", "incomplete")

    def history(self, body: Mapping[str, Any], *, verified: bool) -> History | None:
        """See `Shape`."""
        messages = messages_of(body)
        if messages is None or not (verified or not has_other_items(body)):
            return None
        return ChatHistory(messages)

    def ending(self, body: Mapping[str, Any]) -> Ending:
        """See `Shape`."""
        status = body.get("status")
        failed = status in ("failed", "cancelled")
        return Ending(_answer(body), is_clean=status in _ENDINGS, has_failed=failed)

    def error_body(self, error: Exception, request_id: str) -> bytes:
        """See `Shape`."""
        return error_body(error, request_id)

    def error_event(self, error: Exception, request_id: str, sent: bytes) -> bytes:
        """See `Shape`: both as the API's description has it and as its clients look for it."""
        told = orjson.loads(error_body(error, request_id))
        numbers = _NUMBER.findall(sent)
        event = {
            "type": "error",
            "sequence_number": int(numbers[-1]) + 1 if numbers else 0,
            "code": told["error"]["code"],
            "message": told["error"]["message"],
            "param": None,
            **told,
        }
        return b"event: error\ndata: " + orjson.dumps(event) + b"\n\n"


def _answer(response: Mapping[str, Any]) -> Answer:
    output = response.get("output")
    return answer_of_items(filter(_mapping, output if isinstance(output, list) else ()))


def _is_clients_own(tool: object) -> bool:
    fields = _mapping(tool)
    if fields.get("type") == "namespace":
        inner = fields.get("tools")
        return isinstance(inner, list) and all(map(_is_clients_own, inner))
    return fields.get("type") in _OWN_TOOLS


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
