"""How much of a read NIXL can merge after a while: two block pools under many conversations.

    python pools.py

A pool is vLLM's: blocks are taken from the front of a queue, those of a request that ends go to the
end of it, last block first. D keeps a conversation's blocks from turn to turn; P takes blocks for
the whole history at every turn and frees them. `as it is` is the share of descriptors that is left
when neighbours that rise on both sides become one, `sorted` the same after the pairs of blocks have
been sorted; `and at allocation` lets both pools hand out each allocation in rising order too.
"""
# ruff: noqa: T201 - it prints its table

import itertools
import random
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

TOKENS: Final = 300_000
"""In each pool."""
TURNS: Final = 2000
_CHUNK: Final = 8192
"""Tokens that P computes, and takes blocks for, at a time."""


class Pool:
    def __init__(self, blocks: int, *, is_sorting: bool) -> None:
        self._free = OrderedDict.fromkeys(range(blocks))
        self._is_sorting = is_sorting

    def take(self, count: int) -> list[int]:
        taken = [self._free.popitem(last=False)[0] for _ in range(count)]
        return sorted(taken) if self._is_sorting else taken

    def give(self, blocks: list[int]) -> None:
        self._free.update(dict.fromkeys(reversed(blocks)))


@dataclass
class Conversation:
    turns: int
    tokens: int = 0
    blocks: list[int] = field(default_factory=list)


def runs(mine: list[int], theirs: list[int]) -> int:
    pairs = list(zip(mine, theirs, strict=True))
    follows = (
        one[0] + 1 == two[0] and one[1] + 1 == two[1] for one, two in itertools.pairwise(pairs)
    )
    return len(pairs) - sum(follows)


def remaining(block: int, conversations: int, *, is_sorting: bool) -> tuple[float, float]:
    """Shares of the descriptors that are left: as it is, and with the pairs sorted."""
    chance = random.Random(1)
    p, d = (Pool(TOKENS // block, is_sorting=is_sorting) for _ in range(2))
    talks = [Conversation(chance.randrange(6, 13)) for _ in range(conversations)]
    read = plain = ordered = 0
    for turn in range(TURNS):
        together = chance.sample(talks, min(len(talks), chance.choice((1, 2, 4, 8))))
        for talk in together:
            history = talk.blocks
            talk.tokens += chance.choice((300, 1900, 1900, 4000))
            mine = p.take(len(history))
            if history and turn > TURNS // 3:
                read += len(history)
                plain += runs(mine, history)
                pairs = sorted(zip(mine, history, strict=True))
                ordered += runs([a for a, _ in pairs], [b for _, b in pairs])
            needed = -(-talk.tokens // block) - len(history)
            while (rest := needed + len(history) - len(mine)) > 0:
                mine += p.take(min(rest, _CHUNK // block))
            talk.blocks = history + d.take(needed)
            p.give(mine)
        answer(d, together, block, chance)
        for talk in together:
            talk.turns -= 1
            if talk.turns <= 0 or talk.tokens > 28_000:
                d.give(talk.blocks)
                talks[talks.index(talk)] = Conversation(chance.randrange(6, 13))
    return plain / read, ordered / read


def answer(d: Pool, talks: list[Conversation], block: int, chance: random.Random) -> None:
    """D decodes them together, so that their new blocks alternate."""
    left = {id(talk): chance.randrange(32, 400) for talk in talks}
    while left:
        for talk in talks:
            if id(talk) not in left:
                continue
            room = len(talk.blocks) * block - talk.tokens
            if room == 0:
                talk.blocks += d.take(1)
                room = block
            step = min(room, left[id(talk)])
            talk.tokens += step
            left[id(talk)] -= step
            if left[id(talk)] == 0:
                del left[id(talk)]


def main() -> None:
    print("block  conversations  as it is  sorted  and at allocation")
    for block in (16, 64, 256):
        for conversations in (1, 4, 8):
            plain, ordered = remaining(block, conversations, is_sorting=False)
            both = remaining(block, conversations, is_sorting=True)[1]
            print(f"{block:5} {conversations:14} {plain:9.2f} {ordered:7.2f} {both:18.2f}")


if __name__ == "__main__":
    main()
