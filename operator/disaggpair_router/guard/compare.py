"""How far two distributions of a first token are apart, when only their tops are known. Pure.

The distance is the total variation of p and q,

    TV = sum over tokens of max(0, p - q) = sum over tokens of max(0, q - p)

An engine tells the k most likely tokens, one of which may have given its place to the sampled one.
What it does not tell of is at most as likely as the last but one of them, and as all that is left.
With that in the place of an unknown q the first sum can only become smaller, and so with p in the
second: the larger of the two is a lower bound of TV, and two equal distributions are never said to
differ.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp
from typing import Literal

Verdict = Literal["match", "mismatch", "unstable", "uncached"]
"""`unstable`: computed anew at two engines, the turn differs from itself, so nothing can be said.
`uncached`: the engines had nothing left of the turn to compare."""


@dataclass(frozen=True, slots=True)
class FirstToken:
    """What an engine says of the first token of an answer."""

    logprobs: Mapping[str, float]
    """Natural logarithms of the probabilities of the most likely tokens."""
    cached_tokens: int | None = None
    """Tokens of the prompt that were in its cache; None when it does not tell."""


def distance(one: FirstToken, other: FirstToken, *, told: int) -> float:
    """A lower bound of the total variation, from 0 to 1.

    `told` is how many tokens were asked for.
    """
    p, q = _probabilities(one), _probabilities(other)
    return min(1.0, max(_excess(p, q, told), _excess(q, p, told)))


def _probabilities(found: FirstToken) -> dict[str, float]:
    return {token: exp(min(0.0, value)) for token, value in found.logprobs.items()}


def _excess(p: Mapping[str, float], q: Mapping[str, float], told: int) -> float:
    likely = sorted(q.values(), reverse=True)[: told - 1]
    unknown = min([*likely, max(0.0, 1.0 - sum(q.values()))])
    return sum(max(0.0, value - q.get(token, unknown)) for token, value in p.items())


def verdict(
    cached: Sequence[FirstToken], fresh: Sequence[FirstToken], *, tolerance: float, told: int
) -> Verdict:
    """What to make of a turn.

    Args:
        cached: first tokens from the KV that the turn left in engines.
        fresh: first tokens of the same prompt, computed from nothing.
        tolerance: a larger distance is a difference.
        told: see `distance`.
    """
    if any(distance(fresh[0], one, told=told) > tolerance for one in fresh[1:]):
        return "unstable"
    if any(all(distance(found, one, told=told) > tolerance for one in fresh) for found in cached):
        return "mismatch"
    return "uncached" if all(found.cached_tokens == 0 for found in cached) else "match"
