"""The distance of two first tokens, and what is made of it."""

from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disaggpair_router.guard.compare import FirstToken, distance, verdict

TOKENS = [f"token_id:{number}" for number in range(30)]


@st.composite
def distributions(draw: st.DrawFn) -> dict[str, float]:
    """Probabilities of all tokens of a small vocabulary."""
    weights = draw(st.lists(st.floats(1e-6, 1.0), min_size=len(TOKENS), max_size=len(TOKENS)))
    total = sum(weights)
    return {token: weight / total for token, weight in zip(TOKENS, weights, strict=True)}


def told(probabilities: dict[str, float], count: int, sampled: str = "") -> FirstToken:
    """What an engine tells in a chat: the sampled token, then the most likely ones."""
    likely = sorted(probabilities, key=lambda token: probabilities[token], reverse=True)
    names = list(dict.fromkeys([*filter(None, [sampled]), *likely]))[:count]
    return FirstToken({name: log(probabilities[name]) for name in names})


def variation(p: dict[str, float], q: dict[str, float]) -> float:
    return sum(max(0.0, p[token] - q[token]) for token in TOKENS)


@given(
    distributions(),
    distributions(),
    st.integers(1, 40),
    st.sampled_from(TOKENS),
    st.sampled_from(TOKENS),
)
def test_the_distance_is_never_more_than_the_total_variation(
    p: dict[str, float], q: dict[str, float], count: int, one: str, other: str
) -> None:
    found = distance(told(p, count, one), told(q, count, other), told=count)
    assert 0 <= found <= variation(p, q) + 1e-9


@given(distributions(), distributions())
def test_where_all_is_told_the_distance_is_the_total_variation(
    p: dict[str, float], q: dict[str, float]
) -> None:
    every = len(TOKENS)
    assert distance(told(p, every), told(q, every), told=every) == pytest.approx(variation(p, q))


@given(distributions(), st.integers(1, 40), st.sampled_from(TOKENS), st.sampled_from(TOKENS))
def test_equal_distributions_are_not_apart_whatever_was_sampled(
    p: dict[str, float], count: int, one: str, other: str
) -> None:
    assert distance(told(p, count, one), told(p, count, other), told=count) < 1e-9


@given(distributions(), distributions(), st.integers(1, 40))
def test_the_distance_has_no_direction(
    p: dict[str, float], q: dict[str, float], count: int
) -> None:
    one, other = told(p, count), told(q, count)
    assert distance(one, other, told=count) == distance(other, one, told=count)


def test_a_read_of_wrong_kv_as_it_was_measured_is_a_difference() -> None:
    # The top token's logprob was -0.53 where it should have been -1.69.
    wrong = FirstToken({"a": -0.53, "b": -1.6, "c": -2.5})
    right = FirstToken({"a": -1.69, "b": -1.4, "c": -1.5})
    assert distance(wrong, right, told=3) > 0.3
    assert verdict([wrong], [right], tolerance=0.25, told=3) == "mismatch"


def token(p: float, cached: int | None = 64) -> FirstToken:
    return FirstToken({"a": log(p), "b": log(1 - p)}, cached)


@pytest.mark.parametrize(
    ("cached", "fresh", "found"),
    [
        ([token(0.9)], [token(0.85)], "match"),
        ([token(0.9), token(0.1)], [token(0.85)], "mismatch"),
        ([token(0.1)], [token(0.9), token(0.85)], "mismatch"),
        ([token(0.1)], [token(0.9), token(0.2)], "unstable"),
        ([token(0.5)], [token(0.7), token(0.55)], "match"),
        ([token(0.9, 0), token(0.9, 0)], [token(0.9)], "uncached"),
        ([token(0.9, 0), token(0.9, 64)], [token(0.9)], "match"),
        ([token(0.9, None)], [token(0.9)], "match"),
        ([token(0.1, 0)], [token(0.9)], "mismatch"),
    ],
)
def test_a_verdict_needs_a_difference_from_all_that_was_computed_anew(
    cached: list[FirstToken], fresh: list[FirstToken], found: str
) -> None:
    assert verdict(cached, fresh, tolerance=0.25, told=20) == found


def test_a_probability_above_one_counts_as_one() -> None:
    assert exp(0.1) > 1
    assert distance(FirstToken({"a": 0.1}), FirstToken({"b": 0.0}), told=1) == 1.0
