"""The connector's counts in vLLM's /metrics, beside those of vLLM's own NIXL connector.

Checked in vLLM 0.31.0 to 0.33.0: what the workers and the scheduler half report is aggregated by
`aggregate`, carried as `data`, rebuilt by the connector's class and observed once in the process
that serves /metrics.
"""

from collections.abc import Mapping
from typing import Any, Final

from disaggpair_connector import engine, tally

_DIGEST_BUCKETS: Final = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05)


class PairStats(engine.NixlKVConnectorStats):  # type: ignore[misc]  # vLLM has no types here
    """vLLM's transfer statistics, and what a `Tally` counts."""

    def reset(self) -> None:
        """Forget everything."""
        super().reset()
        self.data.update({key: [] for key in tally.KEYS})

    def add(self, counts: Mapping[str, list[float]]) -> None:
        """Take in what a scheduler half has counted."""
        for key, values in counts.items():
            self.data[key].extend(values)

    def is_empty(self) -> bool:
        """Whether there is nothing to report."""
        return bool(super().is_empty()) and not any(self.data[key] for key in tally.KEYS)


class PairPromMetrics(engine.NixlPromMetrics):  # type: ignore[misc]  # vLLM has no types here
    """The metrics themselves, by engine."""

    def __init__(
        self,
        vllm_config: Any,
        metric_types: dict[Any, Any],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._leases = self._gauge_cls(
            name=tally.PREFIX + tally.LEASES,
            documentation="Leases that this engine holds, by state.",
            labelnames=[*labelnames, "state"],
            multiprocess_mode="mostrecent",
        )
        self._counters = {
            tally.ENDED: self._counter(
                tally.ENDED, "Leases that have ended, by reason.", [*labelnames, "reason"]
            ),
            tally.CLAIMS: self._counter(
                tally.CLAIMS, "Claims of leases, by result.", [*labelnames, "result"]
            ),
            tally.REFUSED: self._counter(
                tally.REFUSED,
                "Reads that were named by transfer parameters and not made, by reason.",
                [*labelnames, "reason"],
            ),
            tally.VERIFIED: self._counter(
                tally.VERIFIED,
                "Tokens read from the other role whose digests were compared.",
                labelnames,
            ),
            tally.BLOCK_SECONDS: self._counter(
                tally.BLOCK_SECONDS,
                "Seconds that leases have held blocks, times blocks, of leases that ended.",
                labelnames,
            ),
        }
        self._make_series()
        self._digest = self._histogram_cls(
            name=tally.PREFIX + tally.DIGEST,
            documentation="Time to compute the digests of a prompt or of an answer.",
            buckets=list(_DIGEST_BUCKETS),
            labelnames=labelnames,
        )

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        """Take in one report."""
        super().observe(transfer_stats_data, engine_idx)
        labels = self.per_engine_labelvalues[engine_idx]
        for value, numbers in tally.series(transfer_stats_data, tally.LEASES).items():
            self._leases.labels(*labels, value).set(numbers[-1])
        for metric in (tally.ENDED, tally.CLAIMS, tally.REFUSED):
            for value, numbers in tally.series(transfer_stats_data, metric).items():
                self._counters[metric].labels(*labels, value).inc(sum(numbers))
        for metric in (tally.VERIFIED, tally.BLOCK_SECONDS):
            amount = sum(transfer_stats_data.get(tally.key(metric), ()))
            if amount:
                self._counters[metric].labels(*labels).inc(amount)
        for seconds in transfer_stats_data.get(tally.key(tally.DIGEST), ()):
            self._digest.labels(*labels).observe(seconds)

    def _make_series(self) -> None:
        """Have every series at 0 from the start, so that the first event is an increase."""
        for labels in self.per_engine_labelvalues.values():
            for metric, (_, values) in tally.LABELLED.items():
                for value in values:
                    if metric == tally.LEASES:
                        self._leases.labels(*labels, value).set(0)
                    else:
                        self._counters[metric].labels(*labels, value)
            for metric in (tally.VERIFIED, tally.BLOCK_SECONDS):
                self._counters[metric].labels(*labels)

    def _counter(self, name: str, documentation: str, labelnames: list[str]) -> Any:
        return self._counter_cls(
            name=tally.PREFIX + name, documentation=documentation, labelnames=labelnames
        )
