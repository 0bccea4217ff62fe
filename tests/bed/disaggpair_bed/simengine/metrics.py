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


def render(cores: Sequence[EngineCore], model_name: str, release: Release) -> str:
    """The whole page, with the samples of each rank in every family."""
    page, ours = _Page(), _Page(tally.PREFIX)
    for rank, core in enumerate(cores):
        page.labels = ours.labels = f'engine="{rank}",model_name="{model_name}"'
        _of_engine(page, core, release)
        if isinstance(core.connector, PairConnector):
            _of_our_connector(ours, core.stats, core.connector.book)
    return page.text() + ours.text()


def _of_engine(page: "_Page", core: EngineCore, release: Release) -> None:
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


def _of_our_connector(page: "_Page", stats: Stats, book: LeaseBook) -> None:
    """What was read, what was not, and the leases."""
    page.counter(tally.VERIFIED, stats.verified_tokens)
    page.labelled(tally.REFUSED, tally.LABELLED[tally.REFUSED][0], stats.refused_reads)
    counters = book.counters
    page.labelled_gauge(tally.LEASES, tally.LABELLED[tally.LEASES][0], book.counts())
    page.labelled(tally.ENDED, tally.LABELLED[tally.ENDED][0], counters.ended)
    claims = {"won": counters.claims_won, "lost": counters.claims_lost}
    page.labelled(tally.CLAIMS, tally.LABELLED[tally.CLAIMS][0], claims)
    page.counter(tally.BLOCK_SECONDS, counters.block_seconds)


class _Page:
    """Collects samples in the text format, those of one family together."""

    def __init__(self, prefix: str = "vllm:") -> None:
        self.labels = ""
        self._prefix = prefix
        self._families: dict[str, list[str]] = {}

    def text(self) -> str:
        return "".join(f"{line}\n" for lines in self._families.values() for line in lines)

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
        full = f"{self._prefix}{name}{suffix}"
        lines = self._families.setdefault(
            name, [f"# HELP {full} Simulated.", f"# TYPE {full} {kind}"]
        )
        for sample, labels, value in samples:
            lines.append(f"{self._prefix}{sample}{{{self.labels}{labels}}} {float(value)}")


def _histogram_samples(name: str, histogram: Histogram) -> Iterator[tuple[str, str, float]]:
    for bound, count in zip(histogram.bounds, histogram.counts, strict=True):
        yield f"{name}_bucket", f',le="{bound}"', count
    yield f"{name}_bucket", ',le="+Inf"', histogram.observations
    yield f"{name}_count", "", histogram.observations
    yield f"{name}_sum", "", histogram.total
