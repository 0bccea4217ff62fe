import pytest

from disaggpair_router.way.tokens import HIGHEST, LOWEST, MAX_MODELS, MAX_TOKENS, TokenRatios


def test_a_model_that_is_not_known_has_four_characters_a_token() -> None:
    assert TokenRatios().tokens("m", 400) == 104
    assert TokenRatios().tokens("m", 400, messages=3) == 112


def test_the_ratio_follows_what_the_engine_counts() -> None:
    ratios = TokenRatios()
    for _ in range(60):
        ratios.observe("m", characters=1_000, tokens=504)
    assert ratios.ratio("m") == pytest.approx(2.0, rel=0.02)
    assert ratios.tokens("m", 1_000) == pytest.approx(504, rel=0.02)
    assert ratios.ratio("other") == 4.0


def test_short_messages_weigh_less() -> None:
    short, long = TokenRatios(), TokenRatios()
    short.observe("m", characters=60, tokens=34)
    long.observe("m", characters=1_000, tokens=504)
    assert 4.0 > short.ratio("m") > long.ratio("m")


@pytest.mark.parametrize(("characters", "tokens"), [(0, 100), (100, 4), (100, 0), (-5, 9), (5, -9)])
def test_what_has_no_ratio_teaches_nothing(characters: int, tokens: int) -> None:
    ratios = TokenRatios()
    ratios.observe("m", characters, tokens)
    assert len(ratios) == 0


def test_a_ratio_and_an_estimate_stay_within_bounds() -> None:
    ratios = TokenRatios()
    for _ in range(200):
        ratios.observe("low", 1, 10**6)
        ratios.observe("high", 10**6, 300)
    assert ratios.ratio("low") == LOWEST
    assert ratios.ratio("high") == HIGHEST
    assert ratios.tokens("low", 10**30) == MAX_TOKENS
    assert ratios.tokens("low", -3, messages=-1) == 1


def test_the_model_that_was_least_recently_seen_is_forgotten() -> None:
    ratios = TokenRatios()
    ratios.observe("first", 1_000, 504)
    for number in range(MAX_MODELS - 1):
        ratios.observe(f"m{number}", 1_000, 504)
    ratios.observe("first", 1_000, 504)
    ratios.observe("last", 1_000, 504)
    assert len(ratios) == MAX_MODELS
    assert ratios.ratio("m0") == 4.0
    assert ratios.ratio("first") < 4.0
