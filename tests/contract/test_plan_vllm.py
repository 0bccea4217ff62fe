"""What the plan renders, judged by vLLM's own configuration class and argument parser."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from disaggpair_bed.builders import pair
from disaggpair_bed.cpu.checks import Checks
from disaggpair_bed.cpu.install import Engines
from disaggpair_operator.api.v1alpha1 import DisaggPair, Spec
from disaggpair_operator.plan.engine_args import engine_arguments
from disaggpair_operator.plan.kv_transfer import RoleName, as_argument, kv_transfer_config
from disaggpair_operator.plan.releases import choose_release

pytestmark = [pytest.mark.engines, pytest.mark.timeout(300, func_only=True)]

ROOT = Path(__file__).parents[2]
FILES = [*sorted(ROOT.glob("tests/golden/*/pair.yaml")), *sorted(ROOT.glob("examples/*.yaml"))]
ROLES: tuple[RoleName, RoleName] = ("prefill", "decode")


def spec_in(path: Path) -> Spec:
    raw = yaml.safe_load(path.read_text())
    return DisaggPair.model_validate_json(json.dumps({"spec": raw["spec"]})).spec


@pytest.fixture(scope="module")
def checks(cpu_engines: Engines, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checks]:
    with Checks(cpu_engines, tmp_path_factory.mktemp("checks") / "vllm.log") as asked:
        yield asked


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
@pytest.mark.parametrize("role", ROLES)
def test_vllm_parses_what_the_plan_renders(checks: Checks, path: Path, role: RoleName) -> None:
    spec = spec_in(path)
    release = choose_release(spec).release
    namespace = checks.parses_arguments(engine_arguments(spec, release, role, "AllInterfaces"))
    assert namespace["port"] == 8000
    assert namespace["block_size"] == spec.kv_transfer.block_size
    assert namespace["host"] is None
    checks.accepts_kv_transfer_config(as_argument(kv_transfer_config(spec, release, role)))


def test_vllm_reads_the_same_transfer_values_on_both_roles(checks: Checks) -> None:
    spec = pair({"kvTransfer": {"decodeTTLSeconds": 900, "recomputeThresholdTokens": 256}}).spec
    release = choose_release(spec).release
    parsed: list[dict[str, Any]] = []
    for role in ROLES:
        namespace = checks.parses_arguments(engine_arguments(spec, release, role, "PodIP"))
        config = namespace["kv_transfer_config"]
        parsed.append(json.loads(config) if isinstance(config, str) else config)
    prefill, decode = (config["kv_connector_extra_config"] for config in parsed)
    assert prefill == decode
    assert prefill["decoder_kv_blocks_ttl"] == 900
    assert prefill["kv_recompute_threshold"] == 256
    assert prefill["bidirectional_kv_xfer"] is True
