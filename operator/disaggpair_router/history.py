"""Does a new turn continue the one a handle belongs to? Pure.

vLLM compares no tokens when P reads D's blocks: a handle under another prompt gives a wrong
answer with status 200, and P files the wrong blocks in its prefix cache. So a handle is offered
only when the new history begins with exactly the messages of the stored turn and D's answer.

The history is a chain of digests: mark i covers the first i messages. A stored turn keeps one
mark, so comparing costs one look-up whatever the length. What the chain cannot see is what the
engine's template makes of equal messages; `session` therefore also asks whether the answer is
plain.
"""

import hashlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

import orjson

from disaggpair_router.answer import Answer
from disaggpair_router.kv import GRAMMAR

Difference = Literal["shorter", "edited", "reasoning"]

NOT_IN_SCOPE: Final = frozenset(
    {
        "messages",
        "prompt",
        "stream",
        "stream_options",
        "max_tokens",
        "max_completion_tokens",
        "min_tokens",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "seed",
        "n",
        "best_of",
        "stop",
        "stop_token_ids",
        "ignore_eos",
        "include_stop_str_in_output",
        "presence_penalty",
        "frequency_penalty",
        "repetition_penalty",
        "length_penalty",
        "logit_bias",
        "logprobs",
        "top_logprobs",
        "bad_words",
        "allowed_token_ids",
        "skip_special_tokens",
        "spaces_between_special_tokens",
        "return_token_ids",
        "return_tokens_as_token_ids",
        "include_reasoning",
        *GRAMMAR,
        "priority",
        "user",
        "metadata",
        "store",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "request_id",
        "session_id",
    }
)
"""Fields that change how tokens are sampled or reported, never the prompt. Every other field,
also one this release does not know, is part of the scope: a wrong miss is cheap, a wrong hit is
a wrong answer."""


_MARK_BYTES: Final = 32
_LOOKED_AT: Final = 1_000
"""Messages before the last among which an earlier turn's end is looked for."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a stored turn ends."""

    length: int
    """Messages of a chat, characters of a completion, the answer included."""
    digest: bytes
    unreasoned: bytes = b""
    """The digest had the answer carried no reasoning; empty when it carried none."""


class History(Protocol):
    """The prompt of one turn, comparable with marks of earlier ones."""

    def difference(self, mark: Mark) -> Difference | None:
        """Why this history does not continue the marked one; None when it does."""
        ...

    def mark_after(self, answer: Answer) -> Mark:
        """The end of this turn once D's answer is part of the history."""
        ...

    def digests(self) -> Iterator[bytes]:
        """Digests of marks that this history would continue, the longest first.

        Of a bounded number: each is looked up, and an earlier turn ends near the end.
        """
        ...

    def prompt(self) -> Mark:
        """The end of this prompt, without an answer."""
        ...

    def beginning(self, length: int) -> bytes | None:
        """Digest of the first part of this prompt; None when it is no longer than that."""
        ...

    def size(self, start: int) -> tuple[int, int]:
        """Characters and messages from a place on; of a text the messages are 0."""
        ...

    def size_after(self, length: int) -> tuple[int, int]:
        """The same of what comes after a prompt of that length and its answer."""
        ...


class ChatHistory:
    """The messages of a chat turn."""

    def __init__(self, messages: Sequence[Mapping[str, Any]]) -> None:
        marks, sizes = [b""], array("Q")
        for message in messages:
            canonical = orjson.dumps(_canonical(message), option=orjson.OPT_SORT_KEYS)
            marks.append(hashlib.sha256(marks[-1] + canonical).digest())
            sizes.append(len(canonical))
        # In one piece each, which another process gives back at once.
        self._marks = b"".join(marks)
        self._sizes = sizes

    def difference(self, mark: Mark) -> Difference | None:
        """See `History`. A history of equal length has no new message: a regenerated turn."""
        if len(self._sizes) <= mark.length:
            return "shorter"
        found = self._mark(mark.length)
        if found == mark.digest:
            return None
        return "reasoning" if found == mark.unreasoned else "edited"

    def mark_after(self, answer: Answer) -> Mark:
        """See `History`."""
        length = len(self._sizes)
        last = self._mark(length)
        bare = _linked(last, answer.message(reasoning=False)) if answer.reasoning else b""
        return Mark(length + 1, _linked(last, answer.message()), bare)

    def digests(self) -> Iterator[bytes]:
        """See `History`."""
        last = len(self._sizes) - 1
        return map(self._mark, range(last, max(0, last - _LOOKED_AT), -1))

    def prompt(self) -> Mark:
        """See `History`."""
        length = len(self._sizes)
        return Mark(length, self._mark(length))

    def beginning(self, length: int) -> bytes | None:
        """See `History`."""
        return self._mark(length) if length < len(self._sizes) else None

    def size(self, start: int) -> tuple[int, int]:
        """See `History`; as JSON, names and quotes included."""
        return sum(self._sizes[start:]), len(self._sizes[start:])

    def size_after(self, length: int) -> tuple[int, int]:
        """See `History`: the answer is one message."""
        return self.size(length + 1)

    def _mark(self, length: int) -> bytes:
        end = length * _MARK_BYTES
        return self._marks[end - _MARK_BYTES : end] if length else b""


class TextHistory:
    """The prompt of a completion turn, continued by appending to prompt and answer."""

    def __init__(self, prompt: str) -> None:
        self._prompt = prompt

    def difference(self, mark: Mark) -> Difference | None:
        """See `History`."""
        if len(self._prompt) <= mark.length:
            return "shorter"
        return None if _digest(self._prompt[: mark.length]) == mark.digest else "edited"

    def mark_after(self, answer: Answer) -> Mark:
        """See `History`."""
        whole = self._prompt + answer.text
        return Mark(len(whole), _digest(whole))

    def digests(self) -> Iterator[bytes]:
        """See `History`; none, since a text may continue any beginning of itself."""
        return iter(())

    def prompt(self) -> Mark:
        """See `History`."""
        return Mark(len(self._prompt), _digest(self._prompt))

    def beginning(self, length: int) -> bytes | None:
        """See `History`."""
        return _digest(self._prompt[:length]) if length < len(self._prompt) else None

    def size(self, start: int) -> tuple[int, int]:
        """See `History`."""
        return max(0, len(self._prompt) - start), 0

    def size_after(self, length: int) -> tuple[int, int]:
        """See `History`: where the answer ends is not known, so it counts as new."""
        return self.size(length)


def scope_digest(
    api: str, body: Mapping[str, Any], *, beside: frozenset[str] = frozenset()
) -> bytes:
    """Digest of everything but the messages that shapes the prompt or its block hashes.

    `beside` are fields that do not, besides those that do not in any API.
    """
    scope = {
        key: value for key, value in body.items() if key not in NOT_IN_SCOPE and key not in beside
    }
    return hashlib.sha256(orjson.dumps([api, scope], option=orjson.OPT_SORT_KEYS)).digest()


def has_media(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a message has a part that is not text, whose content a URL may change."""
    return any(
        not isinstance(part, dict) or part.get("type") != "text"
        for message in messages
        if isinstance(message.get("content"), list)
        for part in message["content"]
    )


def _linked(previous: bytes, message: Mapping[str, Any]) -> bytes:
    canonical = orjson.dumps(_canonical(message), option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(previous + canonical).digest()


def _canonical(message: Mapping[str, Any]) -> dict[str, Any]:
    """The message without what client libraries add when they send an answer back."""
    kept = {key: value for key, value in message.items() if value is not None}
    if kept.get("role") != "assistant":
        return kept
    if "reasoning_content" in kept:
        kept.setdefault("reasoning", kept["reasoning_content"])
        del kept["reasoning_content"]
    calls = kept.get("tool_calls")
    if isinstance(calls, list):
        kept["tool_calls"] = [_canonical_call(call) for call in calls]
    # Libraries add empty lists (`annotations`), and an empty text beside tool calls.
    kept = {key: value for key, value in kept.items() if value not in ("", [])}
    content = kept.get("content")
    part = content[0] if isinstance(content, list) and len(content) == 1 else None
    if isinstance(part, dict) and set(part) == {"type", "text"}:
        kept["content"] = part["text"]
    return kept


def _canonical_call(call: object) -> object:
    if not isinstance(call, dict):
        return call
    # A library that accumulates a stream keeps the chunk's position.
    return {key: value for key, value in call.items() if key != "index" and value is not None}


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
