"""The connector's counts on vLLM's page of metrics."""

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any, get_args

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from disaggpair_connector.handle import Refusal
from disaggpair_connector.lease import EndReason, State
from disaggpair_connector.tally import KEYS, Tally

Load = Callable[..., ModuleType]


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def metrics(load: Load, registry: CollectorRegistry) -> Any:
    types = {"gauge": Gauge, "counter": Counter, "histogram": Histogram}
    return load().DisaggPairConnector.build_prom_metrics(
        None,
        {name: partial(kind, registry=registry) for name, kind in types.items()},
        ["model_name", "engine"],
        {0: ["m", "0"], 1: ["m", "1"]},
    )


def value(registry: CollectorRegistry, name: str, engine: str = "0", **labels: str) -> float | None:
    return registry.get_sample_value(name, {"model_name": "m", "engine": engine, **labels})


def test_a_report_is_observed_by_engine_and_label(metrics: Any, registry: Any) -> None:
    report = {
        "disaggpair:leases|granted": [3, 2],
        "disaggpair:leases_ended|read": [1, 2],
        "disaggpair:claims|won": [4],
        "disaggpair:refused_reads|late": [1, 1],
        "disaggpair:verified_tokens": [600, 100],
        "disaggpair:lease_block_seconds": [1.5],
        "disaggpair:digest_seconds": [0.003, 0.0005],
    }
    metrics.observe(report, 1)
    assert metrics.observed == [report]
    assert value(registry, "disaggpair:leases", "1", state="granted") == 2
    assert value(registry, "disaggpair:leases_ended_total", "1", reason="read") == 3
    assert value(registry, "disaggpair:claims_total", "1", result="won") == 4
    assert value(registry, "disaggpair:refused_reads_total", "1", reason="late") == 2
    assert value(registry, "disaggpair:verified_tokens_total", "1") == 700
    assert value(registry, "disaggpair:lease_block_seconds_total", "1") == 1.5
    assert value(registry, "disaggpair:digest_seconds_count", "1") == 2
    assert value(registry, "disaggpair:digest_seconds_bucket", "1", le="0.001") == 1
    assert value(registry, "disaggpair:verified_tokens_total", "0") == 0


def test_every_series_is_there_before_its_first_event(metrics: Any, registry: Any) -> None:
    for engine in ("0", "1"):
        for state in get_args(State):
            assert value(registry, "disaggpair:leases", engine, state=state) == 0
        for reason in get_args(EndReason):
            assert value(registry, "disaggpair:leases_ended_total", engine, reason=reason) == 0
        for refusal in get_args(Refusal):
            assert value(registry, "disaggpair:refused_reads_total", engine, reason=refusal) == 0


def test_reports_add_up_and_an_empty_one_changes_nothing(metrics: Any, registry: Any) -> None:
    metrics.observe({"disaggpair:verified_tokens": [5], "disaggpair:leases|reading": [1]})
    metrics.observe({key: [] for key in KEYS})
    metrics.observe({"disaggpair:verified_tokens": [6]})
    assert value(registry, "disaggpair:verified_tokens_total") == 11
    assert value(registry, "disaggpair:leases", state="reading") == 1


def test_what_a_scheduler_counts_is_what_the_statistics_carry(load: Load) -> None:
    stats = load().DisaggPairConnector.build_kv_connector_stats()
    assert stats.data.keys() == {"transfer_duration", *KEYS}
    assert stats.is_empty()
    tally = Tally()
    tally.refused("taken")
    tally.verified(7)
    stats.add(tally.take())
    stats.add({"disaggpair:verified_tokens": [3]})
    assert not stats.is_empty()
    assert stats.data["disaggpair:verified_tokens"] == [7, 3]
    assert stats.data["disaggpair:refused_reads|taken"] == [1]
    stats.reset()
    assert stats.is_empty()


def test_vllms_own_counts_alone_are_worth_a_report(load: Load) -> None:
    stats = load().DisaggPairConnector.build_kv_connector_stats()
    stats.data["transfer_duration"].append(0.1)
    assert not stats.is_empty()


def test_statistics_of_another_process_are_taken_as_they_come(load: Load) -> None:
    data = {key: [1.0] for key in (*KEYS, "transfer_duration")}
    stats = load().DisaggPairConnector.build_kv_connector_stats(data)
    assert stats.data == data
