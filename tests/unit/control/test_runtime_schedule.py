"""Which key is taken when, on times given by hand."""

from hypothesis import given
from hypothesis import strategies as st

from disaggpair_operator.schedule import Backoff, Schedule


def test_a_key_is_taken_when_it_is_due_and_not_before() -> None:
    schedule: Schedule[str] = Schedule()
    schedule.add("a", 10.0)
    assert schedule.next_due() == 10.0
    assert schedule.take(9.9) is None
    assert schedule.take(10.0) == "a"
    assert schedule.take(10.0) is None


def test_additions_of_one_key_fold_into_the_earliest() -> None:
    schedule: Schedule[str] = Schedule()
    for due in (5.0, 3.0, 8.0):
        schedule.add("a", due)
    assert len(schedule) == 1
    assert schedule.next_due() == 3.0


def test_the_key_that_is_due_longest_comes_first() -> None:
    schedule: Schedule[str] = Schedule()
    schedule.add("late", 2.0)
    schedule.add("early", 1.0)
    assert [schedule.take(5.0), schedule.take(5.0)] == ["early", "late"]


def test_a_key_added_while_it_is_worked_on_waits_for_the_end() -> None:
    schedule: Schedule[str] = Schedule()
    schedule.add("a", 0.0)
    assert schedule.take(0.0) == "a"
    schedule.add("a", 0.0)
    assert schedule.take(1.0) is None
    assert schedule.next_due() is None
    schedule.finish("a")
    assert schedule.take(1.0) == "a"


def test_other_keys_go_on_while_one_is_worked_on() -> None:
    schedule: Schedule[str] = Schedule()
    schedule.add("a", 0.0)
    schedule.take(0.0)
    schedule.add("a", 0.0)
    schedule.add("b", 1.0)
    assert schedule.take(1.0) == "b"


def test_delays_double_up_to_the_limit() -> None:
    backoff = Backoff(first_s=1.0, factor=2.0, limit_s=5.0, spread=0.0)
    assert [backoff.delay_s(n, 0.5) for n in (1, 2, 3, 4, 5000)] == [1.0, 2.0, 4.0, 5.0, 5.0]


@given(failures=st.integers(1, 10_000), random=st.floats(0, 1, exclude_max=True))
def test_a_delay_is_never_longer_than_the_limit_nor_shorter_than_the_spread_allows(
    failures: int, random: float
) -> None:
    backoff = Backoff()
    delay = backoff.delay_s(failures, random)
    assert backoff.first_s * (1 - backoff.spread) <= delay <= backoff.limit_s


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 100)), max_size=30))
def test_every_added_key_is_taken_exactly_once(additions: list[tuple[str, float]]) -> None:
    schedule: Schedule[str] = Schedule()
    for key, due in additions:
        schedule.add(key, due)
    taken = []
    while (next_key := schedule.take(100.0)) is not None:
        taken.append(next_key)
        schedule.finish(next_key)
    assert sorted(taken) == sorted({key for key, _ in additions})
