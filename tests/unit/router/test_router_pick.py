from dataclasses import replace

import pytest

from disaggpair_router.pick import Choice, Endpoint, may_pair, pick

P1 = Endpoint("p1", "http://p1", "prefill", ready=True)
P2 = replace(P1, name="p2")
D1 = Endpoint("d1", "http://d1", "decode", ready=True)
D2 = replace(D1, name="d2")


def test_the_least_busy_engines_are_picked() -> None:
    busy = {"p1": 2, "p2": 1, "d1": 0, "d2": 3}
    assert pick([P1, P2, D1, D2], busy) == Choice(P2, D1)


def test_the_engine_that_holds_the_conversation_comes_first() -> None:
    assert pick([P1, D1, D2], {"d2": 9}, holder="d2") == Choice(P1, D2)


def test_h33_a_holder_that_is_not_ready_is_passed_over() -> None:
    assert pick([P1, D1, replace(D2, ready=False)], {}, holder="d2") == Choice(P1, D1)


def test_an_engine_to_avoid_is_taken_only_without_another() -> None:
    assert pick([P1, P2, D1], {"p2": 9}, avoid={"p1"}) == Choice(P2, D1)
    assert pick([P1, D1], {}, avoid={"p1", "d1"}) == Choice(P1, D1)
    assert pick([P1, D1, D2], {}, holder="d1", avoid={"d1"}) == Choice(P1, D2)


def test_h39_engines_of_two_revisions_are_not_paired() -> None:
    old, new = replace(P1, revision="1"), replace(D1, revision="2")
    assert not may_pair(old, new)
    assert pick([old, new], {}) == Choice(None, new)
    assert pick([old, new, replace(D2, revision="1")], {}) == Choice(old, replace(D2, revision="1"))


def test_only_the_wanted_revision_serves() -> None:
    old, new = replace(D1, revision="1"), replace(D2, revision="2")
    assert pick([old, new], {"d2": 9}, revision="2") == Choice(None, new)
    assert pick([old], {}, revision="2") is None


@pytest.mark.parametrize(
    ("first", "second", "paired"), [("a", "a", True), ("a", "b", False), ("", "b", True)]
)
def test_h34_engines_of_two_zones_are_not_paired(first: str, second: str, paired: bool) -> None:
    assert may_pair(replace(P1, zone=first), replace(D1, zone=second)) is paired


def test_a_prefill_engine_answers_alone_when_no_decode_engine_is_ready() -> None:
    assert pick([P1, replace(D1, ready=False)], {}) == Choice(None, P1)


def test_one_engine_when_asked_for() -> None:
    choice = pick([P1, D1], {}, single=True)
    assert choice == Choice(None, D1)
    assert not choice.is_pair


def test_nothing_when_nothing_is_ready() -> None:
    assert pick([], {}) is None
