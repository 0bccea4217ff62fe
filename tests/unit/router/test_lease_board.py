"""What a turn does to the board after D's news of the same lease overtook it."""

import pytest

from disaggpair_router.leases.board import Found, Gap, LeaseBoard, Owner
from disaggpair_router.leases.place import Place
from disaggpair_router.leases.rows import Event, Row

OWNER = Owner("d1", "a")
PLACE = Place(b"i" * 16, b"s" * 8, b"h" * 16, 3)


@pytest.fixture
def board() -> LeaseBoard:
    """One engine with one lease, l1."""
    board = LeaseBoard()
    board.replace(OWNER, "e", 0)
    board.add(OWNER, Row("l1", PLACE, "granted", 48, 1.0))
    return board


def only(board: LeaseBoard) -> Found:
    (found,) = board.of_conversation(PLACE)
    return found


def test_a_lease_that_was_marked_claimed_is_free_once_it_is_marked_granted(
    board: LeaseBoard,
) -> None:
    found = only(board)
    board.mark(found, "claimed")
    assert board.of_conversation(PLACE) == []
    assert board.state(found) == "claimed"
    board.mark(found, "granted")
    assert board.of_conversation(PLACE) == [found]


def test_what_is_done_to_a_lease_that_has_ended_changes_nothing(board: LeaseBoard) -> None:
    found = only(board)
    board.apply(OWNER, Event(1, "ended", "expired", found.row))
    board.mark(found, "granted")
    board.forget(found)
    assert board.state(found) is None
    assert list(board) == []
    assert board.since(OWNER) == ("e", 1)


def test_what_is_done_to_a_lease_of_an_engine_that_went_changes_nothing(board: LeaseBoard) -> None:
    found = only(board)
    board.drop(OWNER)
    board.mark(found, "granted")
    board.forget(found)
    assert board.state(found) is None
    assert list(board) == []
    assert board.since(OWNER) is None


def test_news_of_an_engine_that_was_never_listed_is_a_gap(board: LeaseBoard) -> None:
    with pytest.raises(Gap):
        board.apply(Owner("d2", "b"), Event(1))


def test_news_that_came_before_changes_nothing(board: LeaseBoard) -> None:
    board.apply(OWNER, Event(0, "ended", "expired", only(board).row))
    assert len(list(board)) == 1


def test_news_with_some_missing_before_it_is_a_gap(board: LeaseBoard) -> None:
    with pytest.raises(Gap):
        board.apply(OWNER, Event(2, "ended", "expired", only(board).row))
    assert len(list(board)) == 1


def test_a_bookmark_that_is_further_than_the_news_is_a_gap(board: LeaseBoard) -> None:
    board.apply(OWNER, Event(0))
    with pytest.raises(Gap):
        board.apply(OWNER, Event(1))
