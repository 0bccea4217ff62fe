import datetime as dt
import os
from pathlib import Path
from typing import Any

import pytest

from disaggpair_bed.controlplane.errors import StartError
from disaggpair_bed.controlplane.health import unready_nodes, wait_for_answer
from disaggpair_bed.controlplane.images import OPERATOR, bed_images, simulated_image, write_images
from disaggpair_bed.controlplane.nodes import DEFAULT_NODES, NodeSpec, write_nodes_config
from disaggpair_bed.controlplane.pki import Authority
from disaggpair_bed.node.config import load_config
from disaggpair_bed.node.images import ImageMap

NOW = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
SERVER = "https://127.0.0.1:6443"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "pki", "ca", NOW)


def write(run_dir: Path, specs: tuple[NodeSpec, ...], authority: Authority) -> Path:
    return write_nodes_config(
        run_dir,
        specs,
        prefix="127.42",
        server=SERVER,
        authority=authority,
        images=run_dir / "images.yaml",
    )


def test_the_node_process_reads_what_the_cluster_writes(
    tmp_path: Path, authority: Authority
) -> None:
    specs = (*DEFAULT_NODES, NodeSpec("cpu-1", "us-east-2c", "m7i.large", 0, 0, "2", "8Gi", True))
    config = load_config(write(tmp_path, specs, authority))
    assert config.server == SERVER
    for number, (spec, node) in enumerate(zip(specs, config.nodes, strict=True)):
        assert (node.name, node.zone, node.instance_type) == (
            spec.name,
            spec.zone,
            spec.instance_type,
        )
        assert (node.gpus, node.efa, node.cpu, node.memory) == (
            spec.gpus,
            spec.efa,
            spec.cpu,
            spec.memory,
        )
        assert node.hollow is spec.hollow
        assert (node.address, node.pod_prefix) == (f"127.42.{number}.1", f"127.42.{number}")
        files = (node.kubeconfig, node.serving_cert, node.serving_key, node.client_ca)
        assert all(file is not None and file.is_file() for file in files)


def test_more_nodes_than_a_prefix_has_room_for_are_refused(
    tmp_path: Path, authority: Authority
) -> None:
    specs = tuple(NodeSpec(f"n-{number}", "us-east-2a") for number in range(255))
    with pytest.raises(ValueError, match="255 nodes: a bed has room for 254"):
        write(tmp_path, specs, authority)


def test_the_node_process_reads_the_images(tmp_path: Path) -> None:
    path = tmp_path / "images.yaml"
    write_images(path, bed_images())
    images = ImageMap(path)
    assert images.find(OPERATOR).entrypoint == ("disaggpair",)
    simulated = images.find(simulated_image("0.32.0"))
    assert simulated.env == {"SIMENGINE_VERSION": "0.32.0"}
    assert os.access(Path(simulated.path[0]) / "vllm", os.X_OK)
    assert os.access(Path(simulated.path[1]) / "disaggpair-bed", os.X_OK)


def node(name: str, ready: str = "True", taints: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"taints": [{"key": key, "effect": "NoSchedule"} for key in taints]},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


@pytest.mark.parametrize(
    ("nodes", "missing"),
    [
        ([node("a"), node("b")], None),
        ([node("a")], "node b is not registered"),
        ([node("a"), node("b", ready="Unknown")], "node b is not Ready"),
        ([node("a"), {"metadata": {"name": "b"}, "spec": {}, "status": {}}], "node b is not Ready"),
        (
            [node("a", taints=("node.kubernetes.io/not-ready",)), node("b")],
            "node a has the taint node.kubernetes.io/not-ready",
        ),
        ([node("a", taints=("nvidia.com/gpu",)), node("b"), node("c", ready="False")], None),
    ],
)
def test_nodes_take_pods_when_ready_and_without_start_up_taints(
    nodes: list[dict[str, Any]], missing: str | None
) -> None:
    assert unready_nodes(nodes, {"a", "b"}) == missing


def test_waiting_goes_on_over_refused_connections() -> None:
    answers = iter([ConnectionRefusedError("refused"), "not yet", None])

    def question() -> str | None:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    wait_for_answer("thing", question, lambda: None, patience_s=60)
    assert list(answers) == []


def test_waiting_ends_with_what_was_missing() -> None:
    with pytest.raises(StartError, match="thing: not there after 0 s: not yet"):
        wait_for_answer("thing", lambda: "not yet", lambda: None, patience_s=0)


def test_waiting_ends_when_the_check_fails() -> None:
    def check() -> None:
        raise RuntimeError("it died")

    with pytest.raises(RuntimeError, match="it died"):
        wait_for_answer("thing", lambda: "not yet", check, patience_s=60)
