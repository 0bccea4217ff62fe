"""The connector and the operator's command lines against vLLM's own code, 0.32 for the CPU."""

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from disaggpair_bed.builders import pair
from disaggpair_bed.cpu.checks import Checks, RefusedError
from disaggpair_bed.cpu.image import engine_environment
from disaggpair_bed.cpu.install import Engines
from disaggpair_bed.cpu.pair import kv_transfer_config
from disaggpair_connector import compat, contract
from disaggpair_operator.plan.engine_args import engine_arguments
from disaggpair_operator.plan.releases import choose_release

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]

NIXL = "vllm.distributed.kv_transfer.kv_connector.v1.nixl"
CPU_SPEC = {"engine": {"image": "disaggpair/vllm-cpu:v0.32.0"}}


@pytest.fixture(scope="module")
def checks(cpu_engines: Engines, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checks]:
    with Checks(cpu_engines, tmp_path_factory.mktemp("checks") / "vllm.log") as running:
        yield running


def test_vllm_loads_the_connector_by_module_path(checks: Checks) -> None:
    ancestry = checks.connector_ancestry(json.dumps(kv_transfer_config("prefill")))
    assert ancestry[:3] == [contract.CONNECTOR_CLASS, "NixlPullConnector", "NixlBaseConnector"]
    assert "SupportsHMA" in ancestry  # without it vLLM turns its hybrid cache manager off


def test_the_base_class_is_built_as_the_connector_builds_it(checks: Checks) -> None:
    for name in ("NixlPullConnector", "NixlBaseConnector"):
        found = checks.parameters(f"{NIXL}.connector:{name}.__init__")
        assert tuple(found) == compat.CONSTRUCTOR


def test_the_early_hook_gets_the_extra_configuration(checks: Checks) -> None:
    hook = f"{NIXL}.connector:NixlPullConnector.requires_piecewise_for_cudagraph"
    assert checks.parameters(hook) == ["extra_config"]


@pytest.mark.parametrize(
    ("half", "constructed"),
    [
        ("pull_scheduler:NixlPullConnectorScheduler", "kv_cache_config"),
        ("pull_worker:NixlPullConnectorWorker", "kv_cache_config"),
    ],
)
def test_each_half_is_built_from_config_engine_and_cache(
    checks: Checks, half: str, constructed: str
) -> None:
    found = checks.parameters(f"{NIXL}.{half}.__init__")
    assert found == ["self", "vllm_config", "engine_id", constructed]


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ("vllm.config:VllmConfig", "kv_transfer_config"),
        ("vllm.config:VllmConfig", "parallel_config"),
        ("vllm.config:VllmConfig", "aux_output_config"),
        ("vllm.config:KVTransferConfig", "kv_connector_extra_config"),
        ("vllm.config:KVTransferConfig", "kv_role"),
        ("vllm.config:ParallelConfig", "decode_context_parallel_size"),
        ("vllm.config.aux_output:AuxOutputConfig", "enable_return_routed_experts"),
    ],
)
def test_what_the_connector_reads_from_a_configuration_is_there(
    checks: Checks, config: str, field: str
) -> None:
    assert field in checks.parameters(config)


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_vllm_parses_the_planned_command_line_to_what_was_meant(checks: Checks, role: Any) -> None:
    spec = pair(CPU_SPEC | {"decode": {"args": ["--max-num-seqs=8"]}}).spec
    argv = engine_arguments(spec, choose_release(spec).release, role, "AllInterfaces")
    parsed = checks.parses_arguments(argv)
    assert parsed["model_tag"] == spec.model.name
    assert parsed["block_size"] == spec.kv_transfer.block_size
    assert parsed["enable_prefix_caching"] is True
    kv = parsed["kv_transfer_config"]
    assert kv["kv_connector"] == contract.CONNECTOR_CLASS
    assert kv["kv_connector_extra_config"][contract.EXTRA_BIDIRECTIONAL] is True
    assert kv["kv_buffer_device"] == "cpu"  # the platform's own, as nothing is rendered


@pytest.mark.parametrize("key", ["kv_rank", "kv_parallel_size", "kv_buffer_size", "kv_ip", "typo"])
def test_vllm_refuses_a_key_that_0_32_does_not_have(checks: Checks, key: str) -> None:
    config = kv_transfer_config("prefill") | {key: 1}
    with pytest.raises(RefusedError, match=key):
        checks.accepts_kv_transfer_config(json.dumps(config))


def test_vllm_does_not_see_a_misspelt_extra_key(checks: Checks) -> None:
    """The reason for the connector's own check."""
    config = kv_transfer_config("decode", bidirectional_kv_xfr=True)
    checks.accepts_kv_transfer_config(json.dumps(config))


def test_an_argument_that_vllm_does_not_have_ends_its_start(checks: Checks) -> None:
    with pytest.raises(RefusedError, match="--no-such-flag"):
        checks.parses_arguments(["model", "--no-such-flag"])


def test_the_checks_notice_a_name_that_is_gone(checks: Checks) -> None:
    with pytest.raises(RefusedError, match="NixlGoneConnector"):
        checks.parameters(f"{NIXL}.connector:NixlGoneConnector")


def test_vllm_refuses_to_load_the_connector_into_a_release_outside_the_table(
    cpu_engines: Engines,
) -> None:
    program = f"""
import vllm
vllm.__version__ = "0.34.0"
from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
KVConnectorFactory.get_connector_class(KVTransferConfig(**{kv_transfer_config("decode")!r}))
"""
    done = run_python(cpu_engines, program)
    assert done.returncode == 1
    *_, last = done.stderr.splitlines()
    assert "UnsupportedEngineError: vLLM 0.34.0 is not supported" in last
    assert "0.31 <= vLLM < 0.34" in last


def test_the_calm_plugin_fits_the_pinned_engines(cpu_engines: Engines) -> None:
    program = """
from importlib.metadata import entry_points
for plugin in entry_points(group="vllm.general_plugins", name="disaggpair_bed_calm"):
    plugin.load()()
    plugin.load()()
from nixl import _api
from vllm.distributed.device_communicators.shm_broadcast import SpinCondition
config = _api.nixlBind.nixlAgentConfig()
config.pthrDelay = 0
print(config.pthrDelay, SpinCondition.wait.__name__)
"""
    done = run_python(cpu_engines, program)
    assert done.stdout.split()[-2:] == ["500", "calm_wait"], done.stderr


def run_python(engines: Engines, program: str) -> "subprocess.CompletedProcess[str]":
    """Run a program in the engines' environment."""
    return subprocess.run(
        [engines.python, "-c", program],
        env={**os.environ, **engine_environment()},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
