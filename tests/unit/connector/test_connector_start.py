"""The class that vLLM loads, against a stand-in for vLLM."""

import logging
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from disaggpair_connector.errors import ConfigError, UnsupportedEngineError

Load = Callable[..., ModuleType]
EngineConfig = Callable[..., SimpleNamespace]


def test_it_is_vllms_own_class_behind_a_check(load: Load, engine_config: EngineConfig) -> None:
    module = load()
    config, cache = engine_config(), object()
    role = module.engine.KVConnectorRole.WORKER
    made = module.DisaggPairConnector(config, role, cache)
    assert isinstance(made, module.engine.NixlPullConnector)
    assert made.built_with == (config, role, cache)


@pytest.mark.parametrize(("role", "lines"), [("SCHEDULER", 1), ("WORKER", 0)])
def test_one_line_a_start_says_what_runs(
    load: Load,
    engine_config: EngineConfig,
    caplog: pytest.LogCaptureFixture,
    role: str,
    lines: int,
) -> None:
    module = load("0.33.0")
    extra = {"bidirectional_kv_xfer": True, "backends": ["LIBFABRIC"], "decoder_kv_blocks_ttl": 900}
    with caplog.at_level(logging.INFO, "vllm.disaggpair"):
        module.DisaggPairConnector(engine_config(extra), module.engine.KVConnectorRole[role], None)
    assert caplog.messages == lines * [
        "DisaggPairConnector 0.1.0: vllm=0.33.0 nixl=1.5.1 role=kv_consumer bidirectional=on "
        "recompute_threshold_tokens=64 decode_ttl_s=900 prefill_lease_s=30 backends=LIBFABRIC"
    ]


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
    ],
)
def test_settings_that_vllm_handles_by_the_name_of_its_own_connector_are_refused(
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
