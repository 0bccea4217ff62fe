"""The class that vLLM loads, against a stand-in for vLLM."""

import importlib
import logging
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import astuple
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from disaggpair_bed.simengine import leaseterms
from disaggpair_connector.errors import ConfigError, UnsupportedEngineError
from disaggpair_connector.settings import parse_settings

Load = Callable[..., ModuleType]
EngineConfig = Callable[..., SimpleNamespace]


CACHE = SimpleNamespace(
    kv_cache_groups=[SimpleNamespace(kv_cache_spec=SimpleNamespace(block_size=16))]
)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


@pytest.fixture
def made(load: Load) -> Iterator[Callable[..., Any]]:
    """Connectors that are shut down after the test."""
    module = load()
    connectors = []

    def make(config: SimpleNamespace, role: str = "SCHEDULER") -> Any:
        extra = config.kv_transfer_config.kv_connector_extra_config
        extra.setdefault("lease_port", free_port())
        kind = module.engine.KVConnectorRole[role]
        connectors.append(module.DisaggPairConnector(config, kind, CACHE))
        return connectors[-1]

    yield make
    for connector in connectors:
        connector.shutdown()


@pytest.mark.parametrize(
    ("role", "half", "kind"),
    [
        ("SCHEDULER", "kv_consumer", "DecodeScheduler"),
        ("SCHEDULER", "kv_producer", "PrefillScheduler"),
        ("WORKER", "kv_consumer", "PairWorker"),
        ("WORKER", "kv_producer", "PairWorker"),
    ],
)
def test_it_is_vllms_own_class_with_halves_of_ours(
    made: Callable[..., Any], engine_config: EngineConfig, role: str, half: str, kind: str
) -> None:
    connector = made(engine_config(role=half), role)
    halves = [connector.connector_scheduler, connector.connector_worker]
    assert [type(half).__name__ for half in halves if half is not None] == [kind]


@pytest.mark.parametrize(("role", "lines"), [("SCHEDULER", 1), ("WORKER", 0)])
def test_one_line_a_start_says_what_runs(
    made: Callable[..., Any],
    engine_config: EngineConfig,
    caplog: pytest.LogCaptureFixture,
    role: str,
    lines: int,
) -> None:
    port = free_port()
    extra = {"backends": ["LIBFABRIC"], "decoder_kv_blocks_ttl": 900, "lease_port": port}
    with caplog.at_level(logging.INFO, "vllm.disaggpair"):
        made(engine_config(extra), role)
    assert caplog.messages == lines * [
        "DisaggPairConnector 0.1.0: vllm=0.32.0 nixl=1.5.1 role=kv_consumer bidirectional=off "
        "recompute_threshold_tokens=64 decode_ttl_s=900 prefill_lease_s=30 backends=LIBFABRIC "
        f"leases=127.0.0.1:{port}"
    ]


@pytest.mark.parametrize("role", ["kv_consumer", "kv_producer"])
def test_each_role_serves_its_leases_on_the_port_of_its_data_parallel_index(
    made: Callable[..., Any], engine_config: EngineConfig, role: str
) -> None:
    port = free_port()
    made(engine_config({"lease_port": port - 1}, role=role, index=1))
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/leases", timeout=5)
    with refused.value as answer:
        assert answer.code == 403


@pytest.mark.parametrize(
    ("role", "until_bound"), [("kv_consumer", "kv_consumer"), ("kv_producer", "kv_both")]
)
def test_allocations_are_watched_and_ps_frees_wait_as_ds_do(
    made: Callable[..., Any], engine_config: EngineConfig, role: str, until_bound: str
) -> None:
    def allocate_slots(request: object, tokens: int) -> None: ...

    config = engine_config(role=role)
    connector = made(config)
    assert config.kv_transfer_config.kv_role == until_bound
    manager = SimpleNamespace(
        block_pool=object(), allocate_slots=allocate_slots, reset_prefix_cache=lambda: True
    )
    connector.bind_kv_cache_manager(manager)
    assert connector.bound is manager
    assert config.kv_transfer_config.kv_role == role
    assert manager.allocate_slots is not allocate_slots


def test_a_worker_takes_no_part_in_the_allocation_of_blocks(
    made: Callable[..., Any], engine_config: EngineConfig
) -> None:
    config = engine_config(role="kv_producer")
    connector = made(config, "WORKER")
    connector.bind_kv_cache_manager(None)
    assert config.kv_transfer_config.kv_role == "kv_producer"


def test_a_taken_port_ends_the_start_with_how_to_change_it(
    made: Callable[..., Any], engine_config: EngineConfig
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=f"{port}.*lease_port"):
            made(engine_config({"lease_port": port}))


def test_ps_leases_end_before_those_of_vllm_and_ds_when_their_time_is_over(load: Load) -> None:
    load()
    side = importlib.import_module("disaggpair_connector.side")
    settings = parse_settings(
        {"kv_lease_duration": 30, "decoder_kv_blocks_ttl": 7200, "lease_read_s": 25}
    )
    of_p, of_d = side.prefill_terms(settings), side.decode_terms(settings)
    assert (of_p.ttl_s, of_p.read_s) == (20, 10)
    assert of_p.kept_s > 3600
    assert (of_d.ttl_s, of_d.read_s, of_d.kept_s) == (7200, 25, 25)
    # What simulated engines have, which cannot import the module.
    assert astuple(of_p) == astuple(leaseterms.prefill_terms(30))
    assert astuple(of_d) == astuple(leaseterms.decode_terms(7200, 25))


def test_what_is_counted_reaches_the_report_once(
    made: Callable[..., Any], engine_config: EngineConfig
) -> None:
    connector = made(engine_config(role="kv_producer"))
    assert connector.get_kv_connector_stats() is None
    connector._side._tally.refused("unknown")
    report = connector.get_kv_connector_stats()
    assert report.data["disaggpair:refused_reads|unknown"] == [1]
    assert connector.get_kv_connector_stats() is None
    assert made(engine_config(), "WORKER").get_kv_connector_stats() == "the worker's"


def test_a_wrong_key_is_refused_in_both_halves(load: Load, engine_config: EngineConfig) -> None:
    module = load()
    for role in module.engine.KVConnectorRole:
        with pytest.raises(ConfigError, match="'backend'"):
            module.DisaggPairConnector(engine_config({"backend": []}), role, None)


def test_a_wrong_key_is_refused_before_the_engine_is_built(load: Load) -> None:
    hook = load().DisaggPairConnector.requires_piecewise_for_cudagraph
    assert hook({"bidirectional_kv_xfer": True}) is False
    with pytest.raises(ConfigError, match="'backend'"):
        hook({"backend": []})


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ({"context_parallel": 2}, "--decode-context-parallel-size is 2"),
        ({"routed_experts": True}, "--enable-return-routed-experts does not work"),
        ({"extra": {"bidirectional_kv_xfer": True}, "role": "kv_both"}, "kv_role is 'kv_both'"),
        ({"role": "kv_both"}, "kv_role is 'kv_both'"),
        (
            {"extra": {"bidirectional_kv_xfer": True}, "prefill_context_parallel": 2},
            "--prefill-context-parallel-size is 2",
        ),
    ],
)
def test_settings_that_do_not_work_with_it_are_refused(
    load: Load, engine_config: EngineConfig, setting: dict[str, Any], sentence: str
) -> None:
    module = load()
    with pytest.raises(ConfigError, match=sentence):
        module.DisaggPairConnector(
            engine_config(**setting), module.engine.KVConnectorRole.WORKER, None
        )


def test_a_release_outside_the_table_is_refused_on_import(load: Load) -> None:
    with pytest.raises(UnsupportedEngineError, match=r"vLLM 0\.34\.0 is not supported"):
        load("0.34.0")


def test_an_accepted_release_with_another_base_class_is_refused_on_import(load: Load) -> None:
    class Other:
        def __init__(self, vllm_config: object) -> None: ...

    with pytest.raises(UnsupportedEngineError, match="this vLLM differs"):
        load("0.32.0", Other)
