"""Turns of one conversation through a pair, as a router makes them, and what they took."""

import json
import random
import time
import urllib.request
from dataclasses import dataclass, field
from typing import Any, Final

from pair import Pair

FIRST: Final = 2000
NEW: Final = 1900
ANSWER: Final = 64
_VOCABULARY: Final = (10, 150_000)

_READS: Final = {
    "bytes": "vllm:nixl_bytes_transferred_sum",
    "descriptors": "vllm:nixl_num_descriptors_sum",
    "post_s": "vllm:nixl_post_time_seconds_sum",
    "transfer_s": "vllm:nixl_xfer_time_seconds_sum",
}
_SOURCES: Final = "vllm:prompt_tokens_by_source_total"
_FIRST_TOKEN: Final = "vllm:time_to_first_token_seconds_sum"


@dataclass(frozen=True)
class Turn:
    """One turn.

    Attributes:
        prefill_s: the whole P leg, over HTTP.
        decode_s: D's own time to the first token, the read from P included.
        read: what P read from D for it; empty without a read.
        tokens_read: prompt tokens that P had from D.
    """

    prompt: int
    prefill_s: float
    decode_s: float
    tokens_read: int
    read: dict[str, float] = field(default_factory=dict)

    @property
    def first_token_s(self) -> float:
        return self.prefill_s + self.decode_s


class Conversation:
    """Random tokens, answered by what the model says."""

    def __init__(
        self, pair: Pair, seed: int, *, salt: str, vocabulary: tuple[int, int] = _VOCABULARY
    ) -> None:
        self._pair = pair
        self._random = random.Random(seed)
        self._vocabulary = vocabulary
        self._salt = salt
        self.tokens = self.new(FIRST)
        self._handle: dict[str, Any] | None = None

    def new(self, count: int) -> list[int]:
        return [self._random.randrange(*self._vocabulary) for _ in range(count)]

    def turn(self, prompt: list[int], *, is_reading: bool, answer: int = ANSWER) -> Turn:
        """One turn; `is_reading` gives P the handle of the turn before."""
        first = {"do_remote_decode": True, "do_remote_prefill": False}
        params = {**(self._handle or {}), **first} if is_reading else first
        before = metrics(self._pair.prefill)
        started = time.perf_counter()
        prefilled = self._complete(self._pair.prefill, prompt, params, 1)
        prefill_s = time.perf_counter() - started
        decode_before = metrics(self._pair.decode)
        decoded = self._complete(self._pair.decode, prompt, prefilled["kv_transfer_params"], answer)
        decode_s = grown(decode_before, metrics(self._pair.decode), _FIRST_TOKEN)
        after = metrics(self._pair.prefill)
        self._handle = decoded.get("kv_transfer_params")
        self.tokens = prompt + decoded["choices"][0]["token_ids"]
        read = {name: grown(before, after, metric) for name, metric in _READS.items()}
        return Turn(
            prompt=len(prompt),
            prefill_s=prefill_s,
            decode_s=decode_s,
            tokens_read=int(grown(before, after, f'{_SOURCES}|source="external_kv_transfer"')),
            read=read if read["bytes"] else {},
        )

    def _complete(
        self, url: str, prompt: list[int], params: dict[str, Any], answer: int
    ) -> dict[str, Any]:
        body = {
            "model": "m",
            "prompt": prompt,
            "max_tokens": answer,
            "temperature": 0,
            "ignore_eos": True,
            "return_token_ids": True,
            "cache_salt": self._salt,
            "kv_transfer_params": params,
        }
        request = urllib.request.Request(
            f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=120) as response:
            answered: dict[str, Any] = json.loads(response.read())
        return answered


def conversation(
    pair: Pair, seed: int, turns: int, *, new: int = NEW, vocabulary: tuple[int, int] = _VOCABULARY
) -> tuple[list[Turn], list[list[int]]]:
    """Turns that read from D, and the prompts that they had."""
    talk = Conversation(pair, seed, salt=f"conversation-{seed}", vocabulary=vocabulary)
    made: list[Turn] = []
    prompts: list[list[int]] = []
    prompt = talk.tokens
    for number in range(turns):
        prompts.append(prompt)
        made.append(talk.turn(prompt, is_reading=number > 0))
        prompt = talk.tokens + talk.new(new)
    return made, prompts


def without_reading(
    pair: Pair,
    seed: int,
    prompts: list[list[int]],
    *,
    new: int = NEW,
    vocabulary: tuple[int, int] = _VOCABULARY,
) -> list[Turn]:
    """The same histories, which D still has, with other new tokens: all computed by P.

    Args:
        pair: the engines.
        seed: that of the conversation.
        prompts: its prompts, or some of them.
        new: how many tokens at the end of each D has not seen.
        vocabulary: lowest token and one above the highest.
    """
    other = Conversation(pair, -seed, salt=f"conversation-{seed}", vocabulary=vocabulary)
    return [
        other.turn(prompt[:-new] + other.new(new), is_reading=False, answer=8) for prompt in prompts
    ]


def metrics(url: str) -> dict[str, float]:
    """Sample by name and labels."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as response:
        lines = response.read().decode().splitlines()
    return {
        name: float(value)
        for name, value in (line.rsplit(" ", 1) for line in lines if line.startswith("vllm:"))
    }


def grown(before: dict[str, float], after: dict[str, float], metric: str) -> float:
    """How much a metric has grown over all its labels, or over those after `|`."""
    name, _, label = metric.partition("|")
    return sum(
        value - before.get(sample, 0.0)
        for sample, value in after.items()
        if sample.split("{")[0] == name and label in sample
    )
