"""A model whose KV of a token is a number made of all tokens up to it, and a worker that runs it.

So a wrong token, a right token in a wrong place and a block of another conversation all show at
the step that uses them. The next token follows from the number, so two engines answer alike.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from vllm.v1.core.sched.output import SchedulerOutput

VOCABULARY: Final = 50
_MASK: Final = 2**62 - 1


class WrongKVError(AssertionError):
    """A step used KV of something else than the request's own tokens."""


def kv_of(before: int, token: int) -> int:
    """KV of a token after one whose KV is `before`."""
    return (before * 6364136223846793005 + (token + 1) * 1442695040888963407) & _MASK | 1


def kv_of_all(tokens: Iterable[int], salt: str | None = None) -> list[int]:
    """KV of each of the tokens of a prompt."""
    found = [sum(salt.encode()) if salt else 0]
    for token in tokens:
        found.append(kv_of(found[-1], token))
    return found[1:]


def next_token(kv: int) -> int:
    """What the model says after the token of this KV."""
    return (kv >> 20) % VOCABULARY


def answer(prompt: Sequence[int], count: int, salt: str | None = None) -> list[int]:
    """What an engine answers to a prompt."""
    kv = kv_of_all(prompt, salt)[-1]
    said = []
    for _ in range(count):
        said.append(next_token(kv))
        kv = kv_of(kv, said[-1])
    return said


class Memory:
    """KV of one layer in each group of blocks.

    Args:
        blocks: of the pool.
        block_size: tokens per block.
        heads: of the model, for KV.
        head_size: of the model.
    """

    def __init__(self, blocks: int, block_size: int, heads: int, head_size: int) -> None:
        self.block_size = block_size
        self.tensor = torch.zeros((blocks, heads, block_size, 2 * head_size), dtype=torch.bfloat16)
        words = self.tensor.view(torch.int64).numpy()
        self._words = words.reshape(blocks, block_size, -1)

    def write(self, block: int, offset: int, value: int) -> None:
        """Set a token's KV."""
        self._words[block, offset] = value

    def read(self, block: int, offset: int) -> int:
        """A token's KV; 0 for none, -1 where its parts differ."""
        words = self._words[block, offset]
        return int(words[0]) if words[0] == words[-1] else -1

    def holds(self, blocks: Sequence[int], values: Sequence[int], start: int = 0) -> bool:
        """Whether blocks hold the KV of the tokens from place `start` on."""
        size = self.block_size
        return all(
            self.read(blocks[place // size], place % size) == values[place]
            for place in range(start, len(values))
        )


@dataclass(eq=False)
class Running:
    """A request in the worker."""

    tokens: list[int]
    salt: str | None
    blocks: list[list[int]]
    kv: list[int] = field(default_factory=list)

    def known_kv(self) -> list[int]:
        """KV of all tokens so far."""
        if not self.kv:
            self.kv = kv_of_all(self.tokens, self.salt)
        while len(self.kv) < len(self.tokens):
            self.kv.append(kv_of(self.kv[-1], self.tokens[len(self.kv)]))
        return self.kv


@dataclass(eq=False)
class Part:
    """A request's part of a step, with its blocks as they were when the step was given out."""

    request_id: str
    running: Running
    start: int
    count: int
    drafts: list[int]
    blocks: list[list[int]]


class ToyModel:
    """Runs what a scheduler gives out.

    Args:
        memory: the blocks.
        windows: for each group, how many tokens it looks back; None for all.
        salts: cache salt by request, which the scheduler's output does not have.
        draft_tokens: how many are guessed after each step, every other one wrongly.
    """

    def __init__(
        self,
        memory: Memory,
        windows: Sequence[int | None],
        salts: dict[str, str | None],
        draft_tokens: int,
    ) -> None:
        self.memory = memory
        self._windows = windows
        self._salts = salts
        self._draft_tokens = draft_tokens
        self._running: dict[str, Running] = {}
        self.drafts: dict[str, list[int]] = {}

    def take(self, step: SchedulerOutput) -> list[Part]:
        """Take in what changed, and return what is to be computed."""
        for request_id in step.finished_req_ids:
            self._running.pop(request_id, None)
        starts: dict[str, int] = {}
        for new in step.scheduled_new_reqs:
            assert new.prompt_token_ids is not None
            blocks = [list(group) for group in new.block_ids]
            salt = self._salts.get(new.req_id)
            self._running[new.req_id] = Running(list(new.prompt_token_ids), salt, blocks)
            starts[new.req_id] = new.num_computed_tokens
        self._take_cached(step.scheduled_cached_reqs, starts)
        return [
            Part(
                request_id,
                running := self._running[request_id],
                starts[request_id],
                count,
                list(step.scheduled_spec_decode_tokens.get(request_id, ())),
                [list(group) for group in running.blocks],
            )
            for request_id, count in step.num_scheduled_tokens.items()
        ]

    def _take_cached(self, cached: Any, starts: dict[str, int]) -> None:
        for request_id, new_blocks, computed in zip(
            cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True
        ):
            running = self._running[request_id]
            if request_id in cached.resumed_req_ids:
                running.blocks = [list(group) for group in new_blocks]
                if (tokens := cached.all_token_ids.get(request_id)) is not None:
                    running.tokens, running.kv = list(tokens), []
            elif new_blocks is not None:
                for group, more in zip(running.blocks, new_blocks, strict=True):
                    group.extend(more)
            starts[request_id] = computed

    def compute(self, parts: list[Part]) -> dict[str, list[int]]:
        """Compute, and return the sampled tokens of each request."""
        return {part.request_id: self._compute(part) for part in parts}

    def _compute(self, part: Part) -> list[int]:
        running, end = part.running, part.start + part.count
        known = running.known_kv()
        self._check(part, known)
        # What is fed: tokens that are known, then drafts.
        values = list(known[part.start : end])
        said: list[int] = []
        for draft in part.drafts[: end - part.start - len(values)]:
            values.append(kv_of(values[-1] if values else known[-1], draft))
        self._write(part, values)
        if end < len(known):
            return said
        kv = known[-1]
        while len(said) <= len(part.drafts):
            said.append(next_token(kv))
            kv = kv_of(kv, said[-1])
            if part.drafts[len(said) - 1 : len(said)] != said[-1:]:
                break
        running.tokens += said
        self.drafts[part.request_id] = self._guess(running.known_kv()[-1])
        return said

    def _guess(self, kv: int) -> list[int]:
        drafts = []
        for number in range(self._draft_tokens):
            drafts.append((next_token(kv) + (number % 2 + kv % 2) // 2) % VOCABULARY)
            kv = kv_of(kv, drafts[-1])
        return drafts

    def _check(self, part: Part, known: list[int]) -> None:
        size = self.memory.block_size
        for window, blocks in zip(self._windows, part.blocks, strict=True):
            # vLLM lays a load out for the token after it, and then computes the load's last one
            # again, whose window begins one token before (0.32).
            first = 0 if window is None else max(0, part.start - window + 2)
            for place in range(first, part.start):
                found = self.memory.read(blocks[place // size], place % size)
                if found != known[place]:
                    raise WrongKVError(
                        f"{part.request_id} uses block {blocks[place // size]} at {place} of "
                        f"{part.start} computed tokens: {found} instead of {known[place]}"
                    )

    def _write(self, part: Part, values: list[int]) -> None:
        size = self.memory.block_size
        for blocks in part.blocks:
            for place, value in enumerate(values, part.start):
                self.memory.write(blocks[place // size], place % size, value)
