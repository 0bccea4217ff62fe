"""The blocks of leases in the block pool of D's scheduler, and the pool's need of them.

Checked in vLLM 0.31.0 to 0.33.0: a block is free when its `ref_cnt` is 0; `touch` adds a
reference and `free_blocks` drops one; `KVCacheManager.allocate_slots` returns None for lack of
blocks and for nothing else, and changes nothing then that a second call would do twice.
All of it runs in the scheduler's thread.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from disaggpair_connector.lease import Lease
from disaggpair_connector.standstill import Standstill

Blocks = tuple[Any, ...]


class Reading(Protocol):
    """What a reset asks of the leases."""

    def being_read(self) -> list[Lease]:
        """Those that somebody reads."""
        ...

    def wait_for_reads(self) -> None:
        """Wait until there are none."""
        ...


class PoolHolder:
    """References of leases to blocks of one engine.

    Args:
        manager: vLLM's `KVCacheManager`.
    """

    def __init__(self, manager: Any) -> None:
        self._manager = manager
        self._pool = manager.block_pool

    @property
    def used_blocks(self) -> int:
        """Blocks that somebody has a reference to, without the one that is nobody's."""
        used: int = self._pool.num_gpu_blocks - self.free_blocks - 1
        return used

    @property
    def free_blocks(self) -> int:
        """Blocks that can be had without giving up a lease."""
        free: int = self._pool.get_num_free_blocks()
        return free

    def pin(self, request_id: str, counts: Sequence[int]) -> Blocks:
        """Add a reference to the leading blocks of a request, `counts[i]` of its group i."""
        groups = self._manager.get_blocks(request_id).blocks
        pinned = tuple(
            block
            for group, count in zip(groups, counts, strict=True)
            for block in group[:count]
            if not block.is_null
        )
        self._pool.touch(pinned)
        return pinned

    def unpin(self, blocks: Blocks) -> None:
        """Drop the references; what was full of tokens stays in the prefix cache."""
        # Tail first, as vLLM frees a request: a prefix is worth more than what follows it.
        self._pool.free_blocks(reversed(blocks))

    @staticmethod
    def distinct(leases: Sequence[Lease]) -> set[int]:
        """The blocks of some leases, of which several can have the same."""
        return {block.block_id for lease in leases for block in lease.pinned}  # type: ignore[attr-defined]  # as `pin` gave them

    def blocks_of(self, request_id: str) -> int:
        """Blocks that a request has already, in its first group."""
        groups = self._manager.get_blocks(request_id).blocks
        return len(groups[0]) if groups else 0


def yield_to_need(
    manager: Any,
    holder: PoolHolder,
    *,
    block_size: int | None,
    settle: Callable[[], None],
    held_blocks: Callable[[], int],
    give_up_oldest: Callable[[], bool],
    standstill: Standstill,
) -> None:
    """Let every allocation that finds no blocks have those of leases, oldest first.

    Args:
        manager: vLLM's `KVCacheManager`, whose method is replaced on this object.
        holder: the references.
        block_size: tokens per block; None where a token needs no block of its own in every
            group, as with sliding windows: then nothing is said of what can be had in vain.
        settle: drops the references of leases that have ended.
        held_blocks: at least as many as all that could be given up.
        give_up_oldest: gives up one lease; False when there is none.
        standstill: is told what came of each allocation.
    """
    allocate = manager.allocate_slots
    signature = inspect.signature(allocate)

    @functools.wraps(allocate)
    def allocate_slots(*args: Any, **kwargs: Any) -> Any:
        blocks = allocate(*args, **kwargs)
        if blocks is not None:  # as almost always, for every running request at every step
            standstill.got()
            return blocks
        standstill.missed()
        settle()
        if block_size is not None:
            call = signature.bind(*args, **kwargs)
            call.apply_defaults()
            least = least_need(call.arguments, block_size, holder.blocks_of)
            # With all leases given up it would not fit: running requests have to end first.
            if least > holder.free_blocks + held_blocks():
                return None
        blocks = allocate(*args, **kwargs)
        while blocks is None and give_up_oldest():
            blocks = allocate(*args, **kwargs)
        if blocks is not None:
            standstill.got()
        return blocks

    manager.allocate_slots = allocate_slots


def watch_need(manager: Any, standstill: Standstill) -> None:
    """Tell what comes of every allocation.

    Args:
        manager: vLLM's `KVCacheManager`, whose method is replaced on this object.
        standstill: is told.
    """
    allocate = manager.allocate_slots

    @functools.wraps(allocate)
    def allocate_slots(*args: Any, **kwargs: Any) -> Any:
        blocks = allocate(*args, **kwargs)
        standstill.missed() if blocks is None else standstill.got()
        return blocks

    manager.allocate_slots = allocate_slots


def least_need(call: dict[str, Any], block_size: int, blocks_of: Callable[[str], int]) -> int:
    """Free blocks that a call of `allocate_slots` needs at the very least.

    Of several groups only one is counted, and every block that a request has or finds counts in
    full, so that the true need is never lower.
    """
    request = call["request"]
    tokens = (
        request.num_computed_tokens
        + call["num_new_computed_tokens"]
        + call["num_external_computed_tokens"]
        + call["num_new_tokens"]
    )
    found = call["new_computed_blocks"]
    have = blocks_of(request.request_id) + (len(found.blocks[0]) if found is not None else 0)
    needed: int = -(-tokens // block_size) - have + call["reserved_blocks"]
    if call["full_sequence_must_fit"]:  # without a reserve
        needed = max(needed, -(-request.num_tokens // block_size) - have)
    return needed


def drop_before_reset(
    manager: Any, holder: PoolHolder, book: Reading, drop: Callable[[], None]
) -> None:
    """Drop leases before the prefix cache is reset, which fails while a block is held.

    vLLM resets it after an update of weights and before it sleeps, when the memory of the blocks
    goes. So a read is waited for, to its deadline at the longest, if nothing else holds a block;
    nobody can begin another meanwhile, and the engine has nothing to do.

    Args:
        manager: vLLM's `KVCacheManager`, whose method is replaced on this object.
        holder: the references.
        book: the leases.
        drop: ends all leases that are not being read, and drops the references of those that ended.
    """
    reset = manager.reset_prefix_cache

    @functools.wraps(reset)
    def reset_prefix_cache(*args: Any, **kwargs: Any) -> Any:
        drop()
        if len(holder.distinct(book.being_read())) == holder.used_blocks:
            book.wait_for_reads()
            drop()
        return reset(*args, **kwargs)

    manager.reset_prefix_cache = reset_prefix_cache
