"""The KV transfer that both roles share. Pure."""

from typing import Annotated, Literal

from pydantic import Field

from disaggpair_operator.api.rules import Part

DECODE_TTL_S = 480


class DirectTurns(Part):
    """Turns whose new tokens D computes itself, because it holds their history.

    The router chooses for each turn what brings the first token soonest, and keeps the gaps between
    the tokens of D's other answers within a bound.
    """

    max_new_tokens: Annotated[int, Field(ge=1, le=1_048_576)] = 4096
    """Most new tokens of such a turn, as the router estimates them. (A router outside a
    cluster has 8192 where its file does not say otherwise.)"""
    step_tokens: Annotated[int, Field(ge=64, le=65_536)] = 512
    """Tokens that D computes in one step at most (--max-num-batched-tokens of D). A smaller step
    keeps D's other answers smoother and makes D slower at computing prompts."""
    max_gap_milliseconds: Annotated[int, Field(ge=1, le=60_000)] = 100
    """Longest gap between two tokens of D's other answers that such a turn may cause, as the router
    estimates it."""


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
    """Lets D compute the new tokens of turns whose history it holds. Without it P computes them
    all. Needs connector DisaggPair and bidirectional."""
