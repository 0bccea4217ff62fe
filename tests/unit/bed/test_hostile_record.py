"""What counts as a fault of a turn, and how distributions are compared."""

import pytest

from disaggpair_bed.hostile.client import Leg, Outcome
from disaggpair_bed.hostile.conversation import Conversation
from disaggpair_bed.hostile.distribution import TOLERANCE, distance, largest_distance
from disaggpair_bed.hostile.record import Counts, Record
from disaggpair_bed.hostile.turns import Played, Turn

TURN = Turn("edit", Conversation("s"), (1, 2, 3), "s", usable=64)
ANSWERED = Leg("answered", 0.1)


def played(**changes: object) -> Played:
    made = Played(TURN, prefill=ANSWERED, decode=ANSWERED, distances=(0.0, 0.0))
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def count(one: Played, *, usable: int = 64, read: int = 0) -> Counts:
    return Record().add("edit", [one], usable=usable, read=read)


def test_a_turn_that_is_right_is_no_fault() -> None:
    counts = count(played(), read=64)
    assert (counts.turns, counts.read, counts.faults) == (1, 64, 0)


def test_a_distribution_beyond_the_tolerance_is_wrong() -> None:
    assert count(played(distances=(0.0, TOLERANCE * 1.01))).wrong == 1
    assert count(played(distances=(TOLERANCE, 0.0))).wrong == 0


def test_more_tokens_than_the_handle_holds_of_the_prompt_are_unsafe() -> None:
    assert count(played(), usable=64, read=65).unsafe == 1


@pytest.mark.parametrize(
    ("outcome", "name", "faults"),
    [
        ("refused", "refused", 0),
        ("failed", "failed", 1),
        ("gone", "failed", 1),
        ("hung", "hung", 1),
    ],
)
def test_a_leg_is_counted_by_its_outcome(outcome: Outcome, name: str, faults: int) -> None:
    retry = played()
    counts = count(played(prefill=Leg(outcome, 1.0), decode=None, retry=retry))
    assert getattr(counts, name) == 1
    assert counts.faults == faults


def test_a_retry_has_to_be_right() -> None:
    counts = count(
        played(prefill=Leg("refused", 1.0), decode=None, retry=played(distances=(1.0, 0.0)))
    )
    assert counts.wrong == 1
    counts = count(played(decode=Leg("refused", 1.0), retry=played(decode=Leg("failed", 1.0))))
    assert counts.failed == 1


def test_engines_that_ended_or_are_stuck_are_counted() -> None:
    assert count(played(died=("prefill",), stuck=("decode",))).died == 2


def test_the_table_has_a_line_for_each_operation_and_their_sum() -> None:
    record = Record()
    record.add("edit", [played()], usable=64, read=32)
    record.add("swap", [played(distances=(1.0, 0.0)), played()], usable=0, read=32)
    lines = record.table().splitlines()
    assert lines[0].startswith("| operation | turns | usable | read | wrong | unsafe |")
    assert lines[2].startswith("| edit | 1 | 64 | 32 | 0 | 0 |")
    assert lines[2].endswith("| 0.0000 |")
    assert lines[3].startswith("| swap | 2 | 0 | 32 | 1 | 1 |")
    assert lines[4].startswith("| all | 3 | 64 | 64 | 1 | 1 |")
    assert record.distances == {"edit": [0.0], "swap": [0.0]}


def test_distributions_are_as_far_apart_as_their_most_different_token() -> None:
    assert distance({1: -0.5, 2: -2.0}, {1: -0.7, 2: -1.9}) == pytest.approx(0.2)
    assert largest_distance([{1: -1.0}, {1: -1.0}], [{1: -1.0}, {1: -1.25}]) == 0.25
    assert largest_distance([], []) == 0


def test_a_token_that_one_side_does_not_list_counts_as_its_least_likely_one() -> None:
    assert distance({1: -0.5, 2: -3.0}, {1: -0.5, 3: -1.0}) == pytest.approx(2.0)
