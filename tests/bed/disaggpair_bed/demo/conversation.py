"""Five turns of an agent: the whole history is sent again each time, the answer is streamed."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import takewhile
from typing import Any

from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam

from disaggpair_bed.demo.counters import PromptTokens

_TASK = (
    "You keep the logbook of a small harbour. Ships come and go, and each entry names the ship, "
    "its cargo, where it lies and when it leaves. Keep every entry; answer each question from the "
    "logbook alone. "
)
_QUESTION = (
    "Turn {turn}: add a ship that brings {cargo} and lies at berth {turn}, then list them all."
)
_CARGO = ("timber", "grain", "copper", "salt", "oranges", "paper", "tea", "glass")
_ANSWER_TOKENS = 96


@dataclass(frozen=True)
class Turn:
    """One turn as client and prefill engine saw it."""

    turn: int
    prompt_tokens: int
    computed_on_p: int
    from_p_cache: int
    read_from_d: int
    ttft_ms: float
    """From the request to the first piece of text, in milliseconds."""
    answer_characters: int

    def as_dict(self) -> dict[str, Any]:
        """Plain values for the report."""
        return asdict(self)


@dataclass(frozen=True)
class Conversation:
    """Turns that were answered, and what it takes to check the last answer."""

    turns: list[Turn]
    last_answer: str
    recomputed: str
    """The last answer again, with nothing reused: a new conversation under a cache salt of its
    own, so that neither engine has any of it."""

    @property
    def equal_characters(self) -> int:
        """How many characters both answers begin with alike."""
        pairs = zip(self.last_answer, self.recomputed, strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def converse(
    base_url: str, model: str, turns: int, counters: Callable[[], PromptTokens]
) -> Conversation:
    """Hold one conversation of `turns` turns through the router, and check its last answer.

    Args:
        base_url: the router's OpenAI API, with /v1.
        model: served model name.
        turns: how many turns.
        counters: the prefill engine's counters at the moment of the call.
    """
    client = OpenAI(base_url=base_url, api_key="unused", max_retries=0, timeout=300)
    history: list[ChatCompletionMessageParam] = [{"role": "system", "content": _TASK * 4}]
    done: list[Turn] = []
    text = ""
    before = counters()
    for number in range(1, turns + 1):
        if text:
            history.append({"role": "assistant", "content": text})
        cargo = _CARGO[number % len(_CARGO)]
        history.append({"role": "user", "content": _QUESTION.format(turn=number, cargo=cargo)})
        text, ttft_s, prompt = _ask(client, model, history, {"conversation_id": "demo"})
        after = counters()
        added = after.since(before)
        before = after
        done.append(
            Turn(
                turn=number,
                prompt_tokens=prompt,
                computed_on_p=added.computed,
                from_p_cache=added.cached,
                read_from_d=added.read,
                ttft_ms=round(ttft_s * 1000, 1),
                answer_characters=len(text),
            )
        )
    control = {"conversation_id": "demo-control", "cache_salt": "demo-control"}
    recomputed, _, _ = _ask(client, model, history, control)
    return Conversation(done, text, recomputed)


def _ask(
    client: OpenAI,
    model: str,
    history: list[ChatCompletionMessageParam],
    extra: Mapping[str, str],
) -> tuple[str, float, int]:
    """Answer, seconds to its first piece, and prompt tokens of one streamed turn."""
    start = time.perf_counter()
    first = 0.0
    pieces: list[str] = []
    prompt = 0
    stream = client.chat.completions.create(
        model=model,
        messages=history,
        stream=True,
        stream_options={"include_usage": True},
        max_tokens=_ANSWER_TOKENS,
        temperature=0,
        extra_body=dict(extra),
    )
    for chunk in stream:
        if chunk.usage:
            prompt = chunk.usage.prompt_tokens
        for choice in chunk.choices:
            if choice.delta.content:
                first = first or time.perf_counter() - start
                pieces.append(choice.delta.content)
    return "".join(pieces), first, prompt
