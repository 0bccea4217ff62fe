"""Counters of one engine, named after vLLM's metrics."""

from dataclasses import dataclass, field

BYTES_BUCKETS = tuple(float(2 << (10 + 2 * step)) for step in range(12))


@dataclass
class Histogram:
    """A Prometheus histogram with the bounds of `nixl_bytes_transferred`."""

    bounds: tuple[float, ...] = BYTES_BUCKETS
    counts: list[int] = field(default_factory=list)
    total: float = 0.0
    observations: int = 0

    def __post_init__(self) -> None:
        self.counts = [0] * len(self.bounds)

    def observe(self, value: float) -> None:
        """Add one value."""
        self.total += value
        self.observations += 1
        for index, bound in enumerate(self.bounds):
            if value <= bound:
                self.counts[index] += 1


@dataclass
class Stats:
    """Totals since the engine started."""

    local_compute: int = 0
    local_cache_hit: int = 0
    external_kv_transfer: int = 0
    generation_tokens: int = 0
    preemptions: int = 0
    external_queries: int = 0
    external_hits: int = 0
    expired_requests: int = 0
    failed_transfers: int = 0
    failed_notifications: int = 0
    late_notifications: int = 0
    bytes_transferred: Histogram = field(default_factory=Histogram)
    finished: dict[str, int] = field(default_factory=dict)
    """Finished requests by finish reason."""
    simulated_s: float = 0.0
    """Time that steps and reads took by the costs, those side by side counted twice."""
    verified_tokens: int = 0
    """Tokens that our connector let be read after it had compared them."""
    refused_reads: dict[str, int] = field(default_factory=dict)
    """Reads that it did not let happen, by reason."""

    def refused(self, reason: str) -> None:
        """A read did not happen."""
        self.refused_reads[reason] = self.refused_reads.get(reason, 0) + 1

    def verified(self, tokens: int) -> None:
        """A read begins whose tokens were compared."""
        self.verified_tokens += tokens

    def prompt(self, tokens: int, cached: int, external: int) -> None:
        """A prompt is done: how many of its tokens were not computed, and those from a peer."""
        self.local_compute += tokens - cached
        self.local_cache_hit += cached - external
        self.external_kv_transfer += external
