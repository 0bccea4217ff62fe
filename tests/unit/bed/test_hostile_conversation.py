"""Random histories and what is done to them."""

from random import Random

import pytest

from disaggpair_bed.hostile.conversation import (
    Conversation,
    Handle,
    common_prefix,
    deleted,
    drawn,
    inserted,
    replaced,
)

SEEDS = range(50)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_replacement_keeps_the_length_and_changes_something(seed: int) -> None:
    rng = Random(seed)
    tokens = drawn(rng, 120)
    changed = replaced(rng, tokens)
    assert len(changed) == 120
    assert changed != tokens


@pytest.mark.parametrize("seed", SEEDS)
def test_an_insertion_ends_the_common_prefix_where_it_begins(seed: int) -> None:
    rng = Random(seed)
    tokens = drawn(rng, 120)
    changed = inserted(rng, tokens)
    begin = common_prefix(tokens, changed)
    added = len(changed) - len(tokens)
    assert added > 0
    assert changed[begin + added :] == tokens[begin:]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_deletion_leaves_the_rest_in_order(seed: int) -> None:
    rng = Random(seed)
    tokens = tuple(range(120))
    changed = deleted(rng, tokens)
    assert 0 < len(changed) < 120
    assert list(changed) == sorted(changed)


@pytest.mark.parametrize(
    ("one", "other", "count"),
    [((), (1,), 0), ((1, 2, 3), (1, 2, 4), 2), ((1, 2), (1, 2, 3), 2), ((5,), (6,), 0)],
)
def test_the_common_prefix_is_counted_in_tokens(
    one: tuple[int, ...], other: tuple[int, ...], count: int
) -> None:
    assert common_prefix(one, other) == count


def test_the_same_seed_draws_the_same_tokens() -> None:
    assert drawn(Random(3), 40) == drawn(Random(3), 40)


def test_a_conversation_offers_its_last_handle_once() -> None:
    one = Conversation("salt")
    handle = Handle({}, (1, 2), "salt", born_s=0)
    one.went_on((1,), (2, 3), handle)
    assert one.history == (1, 2, 3)
    assert one.handle is handle
    handle.spent = True
    assert one.handle is None


def test_a_turn_without_a_handle_makes_the_one_before_unusable_for_the_next() -> None:
    one = Conversation("salt")
    one.went_on((1,), (2,), Handle({}, (1,), "salt", born_s=0))
    one.went_on((1, 2, 3), (4,), None)
    assert one.handle is None
