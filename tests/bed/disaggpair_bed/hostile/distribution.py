"""How far the next-token distributions of two computations are apart.

An engine gives the likeliest tokens of a position and their log probabilities. Two computations of
the same context on the bed's CPU engines differ by 0 when they run alone and by less than
`TOLERANCE` in a batch with others; a context that differs in one token of a thousand moves the
positions after it by more.
"""

from collections.abc import Mapping, Sequence
from typing import Final

Top = Mapping[int, float]
"""Log probability by token, of the likeliest tokens of one position."""

TOLERANCE: Final = 0.05
"""Largest `distance` of two computations of one context."""


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
