"""Which of the blocks that a lease holds are read."""

from dataclasses import replace

import pytest

from disaggpair_connector.digest import digests_of
from disaggpair_connector.handle import Peer
from disaggpair_connector.transfer_plan import Readable, plan_read
from disaggpair_connector.wire import ReadAnswer

PEER = Peer("engine", "request", "10.0.0.9", 5600, {})
BLOCKS = tuple(range(100, 138))


def answer(*, block_size: int = 16, divisible: bool = True, groups: int = 1) -> ReadAnswer:
    """A lease on 600 tokens, the last block half full."""
    return ReadAnswer(
        peer=PEER,
        digests=digests_of(range(600), 600, b""),
        block_ids=(BLOCKS[: -(-600 // block_size)],) * groups,
        block_size=block_size,
        divisible=divisible,
        deadline_s=20.0,
        token="t",
    )


def plan(proven: int, held: ReadAnswer, *, divisible: bool = True) -> Readable | None:
    return plan_read(proven, held, block_size=16, divisible=divisible)


@pytest.mark.parametrize("held", [answer(), answer(divisible=False), answer(block_size=32)])
def test_all_that_is_held_is_read_with_its_last_block(held: ReadAnswer) -> None:
    whole = Readable(PEER, 600, [list(held.block_ids[0])])
    for divisible in (True, False):
        assert plan(600, held, divisible=divisible) == whole


def test_blocks_after_the_last_token_are_not_read() -> None:
    found = plan(600, replace(answer(), block_ids=((*BLOCKS, 1, 2),)))
    assert found == Readable(PEER, 600, [list(BLOCKS)])


def test_of_a_common_prefix_whole_blocks_of_every_group_are_read() -> None:
    found = plan(599, answer(groups=2))
    assert found == Readable(PEER, 592, [list(BLOCKS[:37])] * 2)
    assert plan(16, answer()) == Readable(PEER, 16, [[100]])


@pytest.mark.parametrize("proven", [0, 15])
def test_less_than_a_block_is_not_read(proven: int) -> None:
    assert plan(proven, answer()) is None


@pytest.mark.parametrize(
    ("held", "divisible"),
    [(answer(divisible=False), True), (answer(), False), (answer(block_size=32), True)],
)
def test_a_part_is_not_read_where_blocks_cannot_be_cut(held: ReadAnswer, divisible: bool) -> None:
    assert plan(512, held, divisible=divisible) is None
