"""What can be set about the way of a turn."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator

from disaggpair_router.configkinds import checked_header


class WayConfig(BaseModel):
    """The choice between FULL, PULL and DIRECT."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    direct: bool = True
    """False: D never computes a turn's new tokens itself, also when a request asks for it."""
    max_new_tokens: int = Field(default=8192, ge=0, le=10_000_000)
    """Most new tokens, as estimated, of a turn that D computes itself: 16 steps of 512, for which
    D's streams run at 40 % of their speed, some 1.3 s. Up to there DIRECT was measured to be
    faster than PULL on an idle D, by no less than 60 ms."""
    gap_budget_s: Annotated[float, Field(gt=0, le=60)] = 0.1
    """Longest gap between two tokens of D's other streams that a DIRECT turn may cause, in
    seconds, as estimated; without streams on D it binds nothing. With a step of 512 tokens 0.077
    to 0.078 were measured at the 99th percentile, 0.031 without such turns."""
    step_tokens: int = Field(default=512, ge=16, le=1_000_000)
    """Tokens that D computes in one step at most (vLLM's `max_num_batched_tokens` at D): what
    a DIRECT turn can add to one gap is the time of so many."""
    hysteresis: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Part of the estimated time of the fastest way, waiting not counted, by which a way has to be
    faster before a conversation leaves that of its last turn. Medians of the same turn scatter by
    about as much."""
    min_pull_tokens: int = Field(default=64, ge=1, le=10_000_000)
    """Fewest tokens of history that P is asked to read from D; the engines' own threshold
    (`kv_recompute_threshold`), below which P computes them anyway."""
    header: str = ""
    """Request header that forces a way (`full`, `pull` or `direct`) for comparisons; empty: none
    does. The choice is made as usual where the way is not possible."""

    @field_validator("header")
    @classmethod
    def _is_header_name(cls, header: str) -> str:
        return checked_header(header) if header else header
