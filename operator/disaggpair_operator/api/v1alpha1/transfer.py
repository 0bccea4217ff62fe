"""The KV transfer that both roles share. Pure."""

from typing import Annotated, Literal

from pydantic import Field

from disaggpair_operator.api.rules import Part, Rule

DECODE_TTL_S = 480


class DirectTurns(Part):
    """Turns that D computes alone. Reserved."""

    max_new_tokens: Annotated[int, Field(ge=1, le=1_048_576)] = 1024
    """Most new tokens of a turn that may go to D alone."""
    step_tokens: Annotated[int, Field(ge=64, le=65_536)] = 512
    """D's prefill step for such turns, in tokens."""


class KVTransfer(Part):
    """One KV-transfer configuration for both roles. A role cannot override it."""

    bidirectional: bool = True
    """P reads the KV of earlier turns back from D."""
    decode_ttl_seconds: Annotated[int, Field(ge=60, le=86_400, alias="decodeTTLSeconds")] = (
        DECODE_TTL_S
    )
    """Seconds for which D keeps a finished turn's blocks (decoder_kv_blocks_ttl). With connector
    DisaggPair D gives the oldest up earlier when it needs the room, so hours do no harm; with Nixl
    nobody else can use the blocks for so long."""
    recompute_threshold_tokens: Annotated[int, Field(ge=1, le=1_048_576)] = 64
    """Fewer reusable tokens than this are computed on P and not read (kv_recompute_threshold)."""
    block_size: Literal[16, 32, 64, 128, 256] = 128
    """Tokens per KV block on both roles. Larger blocks make fewer, larger reads."""
    prefill_lease_seconds: Annotated[int, Field(ge=6, le=3600)] = 30
    """Seconds for which P keeps a prompt's blocks for D (kv_lease_duration); D renews it while the
    request waits."""
    direct_turns: DirectTurns | None = None
    """Reserved: turns that D computes alone. Not yet supported."""

    rules = (
        Rule(
            cel="!has(self.directTurns)",
            message="spec.kvTransfer.directTurns is not yet supported by this version; remove it",
            check=lambda self: self.direct_turns is None,
            field_path=".directTurns",
        ),
    )
