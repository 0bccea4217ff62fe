"""OpenAI's chat and completions APIs. Pure."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeGuard

from disaggpair_router.answer import Answer, answer_from_chunks, answer_of
from disaggpair_router.apis.shape import Ending, Learned
from disaggpair_router.errors import error_body
from disaggpair_router.history import (
    ChatHistory,
    History,
    TextHistory,
    has_media,
)
from disaggpair_router.kv import Json
from disaggpair_router.tokenhistory import TokenHistory

_ENDINGS: Final = frozenset({"stop", "length", "tool_calls", "function_call"})
_FAILURES: Final = frozenset({"error", "abort"})
"""An engine gives them under status 200: it failed, or was paused or put to sleep."""
_MATTERS: Final = re.compile(rb'"(?:finish_reason"\s*:\s*"|usage"\s*:\s*\{|error"\s*:)')


class CompletionStream:
    """Chunks with choices; see `StreamShape`."""

    endings = _ENDINGS
    matters = _MATTERS
    has_params_in_chunks = True

    def params_place(self, chunk: Json) -> Json | None:
        """See `StreamShape`."""
        return chunk

    def learn(self, chunk: Mapping[str, Any], learned: Learned) -> None:
        """See `StreamShape`."""
        error = chunk.get("error")
        if error is not None:
            learned.error = error if isinstance(error, dict) else {}
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            learned.usage = usage
        for choice in chunk.get("choices") or ():
            if isinstance(choice, dict) and isinstance(choice.get("finish_reason"), str):
                learned.finish_reason = choice["finish_reason"]
                if learned.finish_reason in _FAILURES and learned.error is None:
                    learned.error = {}

    def has_answer(self, data: bytes) -> bool:
        """See `StreamShape`."""
        return True

    def answer(self, chunks: Iterable[Mapping[str, Any]]) -> Answer:
        """See `StreamShape`."""
        return answer_from_chunks(chunks)


class _Completions:
    """What both have in common; see `Shape`."""

    stream = CompletionStream()
    tells_in_stream = None
    not_in_scope: frozenset[str] = frozenset()

    def edited(self, body: Json) -> Json:
        """See `Shape`."""
        return body

    def must_run_alone(self, body: Mapping[str, Any]) -> bool:
        """See `Shape`; what the two have to say applies to all APIs and is in `request`."""
        return False

    def is_comparable(self, body: Mapping[str, Any]) -> bool:
        """See `Shape`."""
        return True

    def ending(self, body: Mapping[str, Any]) -> Ending:
        """See `Shape`."""
        choices = body.get("choices")
        first = choices[0] if isinstance(choices, list) and choices else None
        reason = first.get("finish_reason") if isinstance(first, dict) else None
        return Ending(answer_of(body), is_clean=reason in _ENDINGS, has_failed=reason in _FAILURES)

    def error_body(self, error: Exception, request_id: str) -> bytes:
        """See `Shape`."""
        return error_body(error, request_id)

    def error_event(self, error: Exception, request_id: str, sent: bytes) -> bytes:
        """See `Shape`."""
        return b"data: " + error_body(error, request_id) + b"\n\n"


class Chat(_Completions):
    """`/v1/chat/completions`."""

    path = "/v1/chat/completions"

    def history(self, body: Mapping[str, Any], *, verified: bool) -> History | None:
        """See `Shape`."""
        messages = body.get("messages")
        if not isinstance(messages, list) or not all(isinstance(item, dict) for item in messages):
            return None
        return ChatHistory(messages) if verified or not has_media(messages) else None


class Completions(_Completions):
    """`/v1/completions`."""

    path = "/v1/completions"

    def history(self, body: Mapping[str, Any], *, verified: bool) -> History | None:
        """See `Shape`."""
        prompt = body.get("prompt")
        if isinstance(prompt, str):
            return TextHistory(prompt)
        return TokenHistory(prompt) if verified and is_token_ids(prompt) else None


def is_token_ids(prompt: object) -> TypeGuard[list[int]]:
    """Whether a prompt is one of token ids that fit into eight bytes."""
    return (
        isinstance(prompt, list)
        and bool(prompt)
        and all(type(token) is int and 0 <= token < 2**63 for token in prompt)
    )
