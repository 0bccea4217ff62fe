from math import inf, nan

import pytest

from disaggpair_router.way.fit import HIGHEST, LOWEST, Ewma, Fit, bounded

PARTS = {"fixed": 0.1, "token": 0.2}


def test_what_is_not_a_number_is_the_lowest() -> None:
    assert [bounded(value, 1, 3) for value in (0, 2, 9, nan, inf, -inf)] == [1, 2, 3, 1, 3, 1]


def test_an_average_follows() -> None:
    average = Ewma(4.0, 1.0, 8.0, pace=0.5)
    average.observe(6.0)
    assert average.value == 5.0
    average.observe(7.0, weight=0.5)
    assert average.value == 5.5


def test_an_average_is_not_carried_off_by_one_value() -> None:
    average = Ewma(4.0, 1.0, 8.0, pace=0.5)
    average.observe(4000.0)
    assert average.value == 6.0
    for value in (nan, inf, -inf):
        average.observe(value)
        average.observe(4.0, weight=value)
    assert average.value == 6.0


def test_an_average_stays_within_its_bounds() -> None:
    average = Ewma(100.0, 1.0, 8.0)
    assert average.value == 8.0
    for _ in range(200):
        average.observe(0.0)
    assert average.value == 1.0


def test_a_model_begins_with_its_prior() -> None:
    assert Fit("fixed", "token").seconds(PARTS) == pytest.approx(0.3)


def test_a_model_finds_out_which_part_is_slow() -> None:
    fit = Fit("fixed", "token")
    for tokens in [1, 4, 2, 8, 3, 6] * 20:
        fit.observe({"fixed": 0.1, "token": 0.1 * tokens}, 0.1 + 0.3 * tokens)
    assert fit.multiplier("fixed") == pytest.approx(1.0, abs=0.15)
    assert fit.multiplier("token") == pytest.approx(3.0, rel=0.03)


def test_one_stalled_observation_moves_a_model_little() -> None:
    fit = Fit("fixed", "token")
    for _ in range(30):
        fit.observe(PARTS, 0.3)
    fit.observe(PARTS, 300.0)
    assert fit.seconds(PARTS) < 0.33


def test_a_model_follows_when_an_engine_changes_for_good() -> None:
    fit = Fit("fixed", "token")
    for _ in range(300):
        fit.observe(PARTS, 0.3)
    for _ in range(150):
        fit.observe(PARTS, 0.6)
    assert fit.seconds(PARTS) == pytest.approx(0.6, rel=0.1)


@pytest.mark.parametrize("seconds", [0.0, -1.0, nan, inf, 1e9])
def test_what_is_no_duration_teaches_nothing(seconds: float) -> None:
    fit = Fit("fixed", "token")
    fit.observe(PARTS, seconds)
    assert fit.seconds(PARTS) == pytest.approx(0.3)


@pytest.mark.parametrize("part", [0.0, 1e-12, -1.0, nan, inf])
def test_parts_that_are_no_durations_teach_nothing(part: float) -> None:
    fit = Fit("fixed")
    fit.observe({"fixed": part}, 1.0)
    assert fit.multiplier("fixed") == 1.0


def test_multipliers_have_bounds() -> None:
    fit = Fit("slow", "fast", "less", at_most_1=["less"])
    for _ in range(3_000):
        fit.observe({"slow": 1.0}, 1e4)
        fit.observe({"fast": 1.0}, 1e-4)
        fit.observe({"less": 1.0}, 2.0)
    names = ("slow", "fast", "less")
    assert [fit.multiplier(name) for name in names] == [HIGHEST, LOWEST, 1.0]
