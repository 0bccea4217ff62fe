"""How far the next-token distributions of two computations are apart.

An engine gives the likeliest tokens of a position and their log probabilities. Measured on the
bed's CPU engines, in nats, over the 16 to 24 positions after a prompt:

- two computations of one context of at most 2,048 tokens: 0.0000, on either engine, by prefill or
  token by token, alone or beside others, with or without KV that was read from the other engine;
- of a longer context: up to 0.118, since the same prompt may be computed in other pieces;
- one token of the context is another: 0.12 at least, 0.31 in the median; 16 tokens: 0.47 at least.
"""

from collections.abc import Mapping, Sequence
from typing import Final

Top = Mapping[int, float]
"""Log probability by token, of the likeliest tokens of one position."""

TOLERANCE: Final = 0.05
"""Largest `distance` that counts as right; of contexts of at most 2,048 tokens."""


def distance(one: Top, other: Top) -> float:
    """The largest difference of a token's log probability, in nats.

    A token that one side does not list counts there as the least likely one that it lists.
    """
    least, other_least = min(one.values()), min(other.values())
    return max(
        abs(one.get(token, least) - other.get(token, other_least)) for token in {*one, *other}
    )


def largest_distance(ones: Sequence[Top], others: Sequence[Top]) -> float:
    """The largest `distance` over positions; 0 without positions.

    Raises:
        ValueError: the sequences have different lengths.
    """
    return max((distance(*pair) for pair in zip(ones, others, strict=True)), default=0.0)
