"""The engine's /metrics, with the names and labels of vLLM and of our connector."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from disaggpair_bed.simengine.core import EngineCore
from disaggpair_bed.simengine.pairconnector import PairConnector
from disaggpair_bed.simengine.release import Release
from disaggpair_bed.simengine.stats import Histogram, Stats
from disaggpair_connector import tally
from disaggpair_connector.book import LeaseBook

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def render(core: EngineCore, model_name: str, release: Release) -> str:
    """The whole page."""
    page = _Page(f'engine="0",model_name="{model_name}"')
    stats = core.stats
    page.gauge("num_requests_running", core.running)
    page.gauge("num_requests_waiting", core.waiting)
    page.gauge("kv_cache_usage_perc", core.pool.usage)
    page.counter(
        "prompt_tokens", stats.local_compute + stats.local_cache_hit + stats.external_kv_transfer
    )
    page.counter("generation_tokens", stats.generation_tokens)
    page.counter("num_preemptions", stats.preemptions)
    page.labelled(
        "prompt_tokens_by_source",
        "source",
        {
            "local_compute": stats.local_compute,
            "local_cache_hit": stats.local_cache_hit,
            "external_kv_transfer": stats.external_kv_transfer,
        },
    )
    page.labelled("request_success", "finished_reason", stats.finished)
    page.counter("external_prefix_cache_queries", stats.external_queries)
    page.counter("external_prefix_cache_hits", stats.external_hits)
    if core.settings.transfer is not None:
        page.counter("nixl_num_failed_transfers", stats.failed_transfers)
        page.counter("nixl_num_failed_notifications", stats.failed_notifications)
        page.counter("nixl_num_kv_expired_reqs", stats.expired_requests)
        if release.counts_late_notifications:
            page.counter("nixl_num_notifications_after_expiry", stats.late_notifications)
        page.histogram("nixl_bytes_transferred", stats.bytes_transferred)
    if isinstance(core.connector, PairConnector):
        return page.text() + _of_our_connector(core.stats, core.connector.book, page.labels)
    return page.text()


def _of_our_connector(stats: Stats, book: LeaseBook, labels: str) -> str:
    """What was read, what was not, and the leases."""
    page = _Page(labels, tally.PREFIX)
    page.counter(tally.VERIFIED, stats.verified_tokens)
    page.labelled(tally.REFUSED, tally.LABELLED[tally.REFUSED][0], stats.refused_reads)
    counters = book.counters
    page.labelled_gauge(tally.LEASES, tally.LABELLED[tally.LEASES][0], book.counts())
    page.labelled(tally.ENDED, tally.LABELLED[tally.ENDED][0], counters.ended)
    claims = {"won": counters.claims_won, "lost": counters.claims_lost}
    page.labelled(tally.CLAIMS, tally.LABELLED[tally.CLAIMS][0], claims)
    page.counter(tally.BLOCK_SECONDS, counters.block_seconds)
    return page.text()


class _Page:
    """Collects samples in the text format."""

    def __init__(self, labels: str, prefix: str = "vllm:") -> None:
        self.labels = labels
        self._prefix = prefix
        self._lines: list[str] = []

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def gauge(self, name: str, value: float) -> None:
        self._family(name, "gauge", [(name, "", value)])

    def counter(self, name: str, value: float) -> None:
        self._family(name, "counter", [(f"{name}_total", "", value)])

    def labelled_gauge(self, name: str, label: str, values: Mapping[Any, int]) -> None:
        samples = [(name, f',{label}="{key}"', value) for key, value in values.items()]
        self._family(name, "gauge", samples)

    def labelled(self, name: str, label: str, values: Mapping[Any, int]) -> None:
        samples = [(f"{name}_total", f',{label}="{key}"', value) for key, value in values.items()]
        self._family(name, "counter", samples)

    def histogram(self, name: str, histogram: Histogram) -> None:
        self._family(name, "histogram", list(_histogram_samples(name, histogram)))

    def _family(self, name: str, kind: str, samples: Sequence[tuple[str, str, float]]) -> None:
        suffix = "_total" if kind == "counter" else ""
        self._lines.append(f"# HELP {self._prefix}{name}{suffix} Simulated.")
        self._lines.append(f"# TYPE {self._prefix}{name}{suffix} {kind}")
        for sample, labels, value in samples:
            self._lines.append(f"{self._prefix}{sample}{{{self.labels}{labels}}} {float(value)}")


def _histogram_samples(name: str, histogram: Histogram) -> Iterator[tuple[str, str, float]]:
    for bound, count in zip(histogram.bounds, histogram.counts, strict=True):
        yield f"{name}_bucket", f',le="{bound}"', count
    yield f"{name}_bucket", ',le="+Inf"', histogram.observations
    yield f"{name}_count", "", histogram.observations
    yield f"{name}_sum", "", histogram.total
