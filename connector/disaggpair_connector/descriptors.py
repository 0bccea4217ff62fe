"""Whether a block of all layers is one run of memory, which one descriptor can name. Pure.

A read costs by its descriptors more than by its bytes. With one region per layer a block needs as
many descriptors as the model has layers. Where the cache is laid out block by block (vLLM's layouts
that begin with B, 0.29 on), the layers of a block lie side by side in a row, and one region of rows
needs one descriptor per block. vLLM 0.31 to 0.33 registers such rows for some models only: for
attention with more than one KV head per rank, and not in the layout BLHNC.

A row is read whole. So both roles need the same layers, heads per rank and block size.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LayerMemory:
    """Where a layer's KV lies, in addresses and bytes."""

    storage: int
    """Start of the allocation that it is a part of."""
    storage_bytes: int
    start: int
    """Block 0 of this layer."""
    block_stride: int
    """From a block to the next one."""
    page_bytes: int
    """Of one block of this layer."""


@dataclass(frozen=True, slots=True)
class Rows:
    """An allocation that is nothing but rows, one a block."""

    blocks: int
    row_bytes: int


def rows_of(layers: Iterable[LayerMemory], blocks: int) -> Rows | None:
    """The rows that the layers make up; None if they are one, or lie in any other way.

    Every byte of a row has to be some layer's or padding that no other cache uses: pages may not
    overlap, as those of layers that share memory do.

    Args:
        layers: all caches that are transferred.
        blocks: blocks of each.
    """
    found = list(layers)
    if len(found) < 2 or blocks < 1:
        return None
    first = found[0]
    whole = Rows(blocks, first.block_stride)
    if whole.row_bytes * blocks != first.storage_bytes:
        return None
    end = 0
    for layer in sorted(found, key=lambda layer: layer.start):
        offset = layer.start - layer.storage
        if (
            layer.storage != first.storage
            or layer.block_stride != whole.row_bytes
            or offset < end
            or layer.page_bytes < 1
        ):
            return None
        end = offset + layer.page_bytes
    return whole if end <= whole.row_bytes else None
