"""For how long an engine has had no blocks for anybody."""

import pytest

from disaggpair_connector.standstill import PATIENCE_S, Standstill


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def standstill(clock: Clock) -> Standstill:
    return Standstill(clock)


def miss_for(standstill: Standstill, clock: Clock, seconds: float) -> None:
    for _ in range(8):
        standstill.missed()
        clock.now += seconds / 8


def test_an_engine_of_which_nobody_wants_blocks_does_not_stand_still(
    standstill: Standstill,
) -> None:
    assert not standstill.has_lasted


def test_without_blocks_for_anybody_for_a_time_it_does(
    standstill: Standstill, clock: Clock
) -> None:
    miss_for(standstill, clock, PATIENCE_S - 0.1)
    assert not standstill.has_lasted
    clock.now += 0.2
    assert standstill.has_lasted


def test_blocks_for_one_request_end_it(standstill: Standstill, clock: Clock) -> None:
    miss_for(standstill, clock, PATIENCE_S)
    standstill.got()
    assert not standstill.has_lasted
    standstill.missed()
    assert not standstill.has_lasted


def test_it_lasts_as_long_again_after_something_was_given_up(
    standstill: Standstill, clock: Clock
) -> None:
    miss_for(standstill, clock, PATIENCE_S)
    standstill.restart()
    miss_for(standstill, clock, PATIENCE_S - 0.1)
    assert not standstill.has_lasted
    clock.now += 0.2
    assert standstill.has_lasted


def test_a_request_that_has_left_does_not_count_for_the_next_one(
    standstill: Standstill, clock: Clock
) -> None:
    standstill.missed()
    clock.now += 60.0
    standstill.missed()
    assert not standstill.has_lasted
    miss_for(standstill, clock, PATIENCE_S)
    assert standstill.has_lasted
