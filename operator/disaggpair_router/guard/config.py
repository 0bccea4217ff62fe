"""What can be set about the guard."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class GuardConfig(BaseModel):
    """Computes a sample of turns again and compares; off by default."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    sample: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of the turns that used an earlier turn's KV (PULL, DIRECT) and are checked, such as
    0.001; 0 for none. A check computes the turn's whole prompt once more, at one engine."""
    tolerance: Annotated[float, Field(gt=0, lt=1)] = 0.25
    """How far two distributions of a first token may be apart (total variation: 0 when they are
    equal, 1 when they have no token in common). The same KV from other kernels or batches gives
    differences too, more with quantised KV: up to 0.16 was measured with steps of other sizes, 0.61
    and more with the KV of another history."""
    max_in_flight: Annotated[int, Field(ge=0, le=100_000)] = 4
    """Legs of this router at an engine, above which a check is left out."""
    limit_s: Annotated[float, Field(gt=0, le=3_600)] = 60.0
    """For each answer to a question of a check."""
