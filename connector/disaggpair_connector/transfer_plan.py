"""Which of the blocks that a lease holds are read for a prompt. Pure."""

from dataclasses import dataclass

from disaggpair_connector.handle import Peer
from disaggpair_connector.wire import ReadAnswer


@dataclass(frozen=True, slots=True)
class Readable:
    """Blocks to read, and how many leading tokens of the prompt they hold."""

    peer: Peer
    tokens: int
    block_ids: list[list[int]]


def plan_read(
    proven: int, held: ReadAnswer, *, block_size: int, divisible: bool
) -> Readable | None:
    """What may be read when the first `proven` tokens are the prompt's; None for nothing.

    All that is held if all of it is proven, the last and partly filled block included. Else whole
    blocks of the common prefix, where a block of every group holds the same tokens; a window's or
    a state's blocks belong to the whole sequence, and blocks of two sizes do not end together.

    Args:
        proven: leading tokens of the prompt that are known to be held.
        held: D's answer.
        block_size: tokens per block of the reader.
        divisible: whether the reader's groups can be cut.
    """
    if proven == held.digests.tokens:
        # A reader that has the first blocks takes the last ones, so none may follow.
        needed = -(-proven // held.block_size) if held.divisible else None
        return Readable(held.peer, proven, [list(group[:needed]) for group in held.block_ids])
    blocks = proven // block_size
    if blocks == 0 or not (divisible and held.divisible and held.block_size == block_size):
        return None
    cut = [list(group[:blocks]) for group in held.block_ids]
    return Readable(held.peer, blocks * block_size, cut)
