"""Sizes and switches of an engine core."""

from dataclasses import dataclass

from disaggpair_bed.simengine.decisions import TransferSettings


@dataclass(frozen=True)
class CoreSettings:
    """One core."""

    model: str = "toy"
    num_blocks: int = 4096
    block_size: int = 16
    max_model_len: int = 131_072
    max_batched_tokens: int = 8192
    max_sequences: int = 256
    prefix_caching: bool = True
    transfer: TransferSettings | None = None
    """None: the engine runs without a KV connector."""
    abort_during_read_crashes: bool = False
