"""The paged KV cache of one engine: block memory, reference counts, prefix cache.

Follows vLLM's block pool: block 0 is never given out; a freed block keeps its data and its place
in the prefix cache until it is taken again, oldest first; the blocks of one request are freed
from the last to the first, so that the tail of a prompt is lost before its head.
"""

import hashlib
from array import array
from collections.abc import Iterable, Sequence

from disaggpair_bed.simengine.kv import BYTES_PER_POSITION


class BlockPool:
    """Blocks by number; a number outside the pool raises IndexError."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        if num_blocks < 2:
            raise ValueError(f"num_blocks is {num_blocks}, must be at least 2")
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._data = bytearray(num_blocks * block_size * BYTES_PER_POSITION)
        self._memory = memoryview(self._data)
        self._refs = [0] * num_blocks
        self._free: dict[int, None] = dict.fromkeys(range(1, num_blocks))
        self._hash_of: dict[int, bytes] = {}
        self._block_of: dict[bytes, int] = {}

    @property
    def free_blocks(self) -> int:
        """Blocks that an allocation could take."""
        return len(self._free)

    @property
    def used_blocks(self) -> int:
        """Blocks that somebody has a reference to."""
        return self.num_blocks - 1 - len(self._free)

    @property
    def usage(self) -> float:
        """Share of the blocks that are in use, 0 to 1."""
        return 1 - len(self._free) / (self.num_blocks - 1)

    def allocate(self, count: int) -> list[int] | None:
        """Blocks with one reference each, or None when there are not enough."""
        if count > len(self._free):
            return None
        blocks = [block for block, _ in zip(self._free, range(count), strict=False)]
        for block in blocks:
            del self._free[block]
            self._refs[block] = 1
            self._forget(block)
        return blocks

    def share(self, blocks: Iterable[int]) -> None:
        """Take one more reference on blocks from the prefix cache."""
        for block in blocks:
            if self._refs[block] == 0:
                del self._free[block]
            self._refs[block] += 1

    def release(self, blocks: Sequence[int]) -> None:
        """Give back one reference on each block."""
        for block in reversed(blocks):
            self._refs[block] -= 1
            if self._refs[block] == 0:
                self._free[block] = None

    def cached_prefix(self, hashes: Iterable[bytes]) -> list[int]:
        """Blocks of the longest prefix of the hashes that the prefix cache has."""
        blocks = []
        for digest in hashes:
            block = self._block_of.get(digest)
            if block is None:
                break
            blocks.append(block)
        return blocks

    def cache(self, block: int, digest: bytes) -> None:
        """File a full block under its hash; the first block under a hash stays."""
        if block not in self._hash_of and digest not in self._block_of:
            self._hash_of[block] = digest
            self._block_of[digest] = block

    def reset_prefix_cache(self) -> None:
        """Forget every hash; the blocks stay where they are."""
        self._hash_of.clear()
        self._block_of.clear()

    def wipe(self) -> None:
        """Empty the memory of all blocks."""
        self._memory[:] = bytes(len(self._data))

    def _forget(self, block: int) -> None:
        digest = self._hash_of.pop(block, None)
        if digest is not None:
            del self._block_of[digest]

    def read(self, block: int) -> memoryview:
        """What lies in a block now, whoever wrote it."""
        if not 0 <= block < self.num_blocks:
            raise IndexError(f"block {block} is outside the pool of {self.num_blocks}")
        size = self.block_size * BYTES_PER_POSITION
        return self._memory[block * size : (block + 1) * size]

    def write(self, blocks: Sequence[int], position: int, values: "array[int]") -> None:
        """Write KV of consecutive positions, the first one being `position` of the request."""
        data = memoryview(values).cast("B")
        size = self.block_size * BYTES_PER_POSITION
        at = position * BYTES_PER_POSITION
        done = 0
        while done < len(data):
            index, offset = divmod(at + done, size)
            count = min(size - offset, len(data) - done)
            self.read(blocks[index])[offset : offset + count] = data[done : done + count]
            done += count

    def span(self, blocks: Sequence[int], start: int, end: int) -> bytes:
        """KV bytes of the positions from start up to end of a request."""
        if start >= end:
            return b""
        size = self.block_size * BYTES_PER_POSITION
        first, last = start // self.block_size, (end - 1) // self.block_size
        joined = b"".join(self.read(block) for block in blocks[first : last + 1])
        begin = start * BYTES_PER_POSITION - first * size
        return joined[begin : begin + (end - start) * BYTES_PER_POSITION]

    def value(self, blocks: Sequence[int], position: int) -> int:
        """KV of one position of a request."""
        return memoryview(self.span(blocks, position, position + 1)).cast("Q")[0]


def block_hashes(
    tokens: "array[int]", block_size: int, salt: str = "", *, after: Sequence[bytes] = ()
) -> list[bytes]:
    """Chained hashes of the full blocks, going on after those that are given."""
    hashes = list(after)
    parent = hashes[-1] if hashes else hashlib.sha256(b"salt:" + salt.encode()).digest()
    for start in range(len(hashes) * block_size, len(tokens) - block_size + 1, block_size):
        parent = hashlib.sha256(parent + tokens[start : start + block_size].tobytes()).digest()
        hashes.append(parent)
    return hashes
