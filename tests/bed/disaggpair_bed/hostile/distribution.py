"""How far the next-token distributions of two computations are apart.

An engine gives the likeliest tokens of a position and their log probabilities. Measured on the
bed's CPU engines, in nats, over the 16 to 24 positions after prompts of 200 to 3,000 tokens:

- two computations of one context, each prompt computed in one step: 0.0000, on either engine, by
  prefill or token by token, with or without KV that was read from the other;
- the same with prompts cut into steps at different places: up to 0.118;
- one token of the context is another: 0.12 at least, 0.31 in the median; 16 tokens: 0.47 at least.
"""

from collections.abc import Mapping, Sequence
from typing import Final

Top = Mapping[int, float]
"""Log probability by token, of the likeliest tokens of one position."""

TOLERANCE: Final = 0.05
"""Largest `distance` of two computations of one context, with prompts computed in one step."""


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
