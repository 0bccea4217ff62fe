from math import inf, nan

import pytest

from disaggpair_router.way.backlog import MAX_LEGS, Backlog, Load, Work

WORK = Work({"fixed": 0.1, "token": 1.0}, seconds=1.0, latency_s=0.1, tokens=500)


def test_an_engine_without_legs_has_nothing_ahead() -> None:
    assert Backlog().load(5.0) == Load(0.0, 0, 0)


def test_work_adds_up_and_is_worked_off() -> None:
    backlog = Backlog()
    backlog.start("a", WORK, 10.0)
    backlog.start("b", WORK, 10.5)
    assert backlog.load(10.5).ahead_s == pytest.approx(1.5)
    assert backlog.load(11.5).ahead_s == pytest.approx(0.5)
    assert backlog.load(20.0).ahead_s == 0.0
    assert backlog.load(11.5).ahead_tokens == 1_000


def test_a_leg_that_ends_early_takes_its_rest_with_it() -> None:
    backlog = Backlog()
    backlog.start("a", WORK, 0.0)
    backlog.start("b", WORK, 0.0)
    backlog.end("a", 0.3)
    assert backlog.load(0.3).ahead_s == pytest.approx(1.0)
    backlog.end("b", 0.4)
    assert backlog.load(0.4).ahead_s == 0.0


def test_a_leg_that_ends_late_makes_the_others_late() -> None:
    backlog = Backlog()
    for leg in "abc":
        backlog.start(leg, WORK, 0.0)
    backlog.end("a", 1.6)
    assert backlog.load(1.6).ahead_s == pytest.approx(1.9)
    backlog.end("b", 9.0)
    assert backlog.load(9.0).ahead_s == pytest.approx(1.0)


def test_legs_without_a_pause_are_learned_from_as_one() -> None:
    backlog = Backlog()
    backlog.start("a", WORK, 10.0)
    backlog.start("b", WORK, 10.5)
    assert backlog.end("a", 11.0) is None
    stretch = backlog.end("b", 12.0)
    assert stretch is not None
    assert stretch.parts == {"fixed": 0.1, "token": 2.0}
    assert stretch.seconds == 2.0


def test_after_a_pause_another_stretch_begins() -> None:
    backlog = Backlog()
    backlog.start("a", WORK, 1.0)
    backlog.end("a", 2.0)
    backlog.start("b", WORK, 5.0)
    stretch = backlog.end("b", 6.5)
    assert stretch is not None
    assert (stretch.parts, stretch.seconds) == (WORK.parts, 1.5)


def test_a_stretch_with_a_leg_that_failed_tells_nothing() -> None:
    backlog = Backlog()
    backlog.start("a", WORK, 0.0)
    backlog.start("b", WORK, 0.0)
    backlog.drop("a", 0.1)
    assert backlog.load(0.1).ahead_s == pytest.approx(1.0)
    assert backlog.end("b", 1.0) is None


def test_a_stretch_of_many_legs_tells_nothing() -> None:
    backlog = Backlog()
    for leg in range(MAX_LEGS + 1):
        backlog.start(str(leg), WORK, 0.0)
    ends = [backlog.end(str(leg), 1.0 + leg) for leg in range(MAX_LEGS + 1)]
    assert set(ends) == {None}


def test_a_leg_that_is_not_known_changes_nothing() -> None:
    backlog = Backlog()
    assert backlog.end("a", 1.0) is None
    backlog.drop("a", 1.0)
    backlog.start("b", WORK, 2.0)
    assert backlog.end("b", 3.0) is not None
    assert len(backlog) == 0


def test_requests_of_others_that_wait_count() -> None:
    load = Backlog().load(0.0, streams=3.0, others=4.0, each_s=0.25)
    assert load == Load(ahead_s=1.0, ahead_tokens=0, streams=3)


@pytest.mark.parametrize("gauge", [nan, -1.0, -inf])
def test_a_gauge_that_is_no_number_counts_as_nothing(gauge: float) -> None:
    assert Backlog().load(0.0, streams=gauge, others=gauge, each_s=gauge) == Load()
