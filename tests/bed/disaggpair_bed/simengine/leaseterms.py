"""How long the leases of each role last, as in the connector's `side`, which needs vLLM."""

from dataclasses import dataclass
from typing import Final

_FOR_VLLM_TO_END_S: Final = 86_400.0


@dataclass(frozen=True)
class LeaseTerms:
    """Times in seconds."""

    ttl_s: float
    """Until a lease that nobody reads ends."""
    read_s: float
    """What a reader is told to have."""
    kept_s: float
    """When a lease ends whose reader does not say that it has read."""


def decode_terms(ttl_s: float, read_s: float) -> LeaseTerms:
    """D's leases hold the blocks themselves."""
    return LeaseTerms(ttl_s, read_s, read_s)


def prefill_terms(pin_s: float) -> LeaseTerms:
    """P's leases end before its pins, whose last third is for a reader to begin with heartbeats."""
    return LeaseTerms(2 * pin_s / 3, pin_s / 3, _FOR_VLLM_TO_END_S)
