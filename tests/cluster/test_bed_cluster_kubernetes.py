"""What a bed has of a real cluster: controllers, scheduler, bounded nodes, Helm."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from disaggpair_bed.cluster import DEFAULT_NODES, Cluster
from disaggpair_bed.controlplane.errors import ToolError
from disaggpair_bed.controlplane.images import OPERATOR

IDLE = ["sleep", "3600"]


def pod_spec(command: Sequence[str] = IDLE, **fields: Any) -> dict[str, Any]:
    container = {"name": "main", "image": OPERATOR, "command": list(command)}
    return {"terminationGracePeriodSeconds": 1, "containers": [container], **fields}


def apply(cluster: Cluster, namespace: str, *objects: dict[str, Any]) -> None:
    text = yaml.safe_dump_all(objects)
    cluster.kubectl("apply", f"--namespace={namespace}", "--filename=-", stdin=text)


def test_a_deployment_becomes_running_pods_on_nodes(cluster: Cluster, namespace: str) -> None:
    labels = {"app": "idle"}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "idle"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod_spec()},
        },
    }
    apply(cluster, namespace, deployment)
    cluster.kubectl(
        "rollout",
        "status",
        "deployment/idle",
        f"--namespace={namespace}",
        "--timeout=90s",
        timeout_s=100,
    )
    pods = json.loads(cluster.kubectl("get", "pods", f"--namespace={namespace}", "--output=json"))
    names = {spec.name for spec in DEFAULT_NODES}
    assert [pod["spec"]["nodeName"] in names for pod in pods["items"]] == [True, True]


def test_the_scheduler_counts_gpus_and_honours_zones(cluster: Cluster, namespace: str) -> None:
    zone = {"topology.kubernetes.io/zone": "us-east-2b"}
    fits, too_many = pod_spec(nodeSelector=zone), pod_spec(nodeSelector=zone)
    for spec, gpus in ((fits, 8), (too_many, 9)):
        spec["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    for name, spec in (("fits", fits), ("too-many", too_many)):
        apply(
            cluster,
            namespace,
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec},
        )
    for name, status in (("fits", "True"), ("too-many", "False")):
        cluster.kubectl(
            "wait",
            f"--for=condition=PodScheduled={status}",
            f"pod/{name}",
            f"--namespace={namespace}",
            "--timeout=60s",
            timeout_s=70,
        )
    found = json.loads(cluster.kubectl("get", "pods", f"--namespace={namespace}", "--output=json"))[
        "items"
    ]
    assert {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in found} == {
        "fits": "p5en-b-1",
        "too-many": None,
    }


def test_the_log_of_a_pod_comes_through_the_api_server(cluster: Cluster, namespace: str) -> None:
    """The API server verifies the node, the node the API server."""
    spec = pod_spec(["sh", "-c", "echo hello"], restartPolicy="Never")
    apply(
        cluster,
        namespace,
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "talk"}, "spec": spec},
    )
    cluster.kubectl(
        "wait",
        "--for=jsonpath={.status.phase}=Succeeded",
        "pod/talk",
        f"--namespace={namespace}",
        "--timeout=60s",
        timeout_s=70,
    )
    assert cluster.kubectl("logs", "talk", f"--namespace={namespace}") == "hello\n"


def test_a_node_reads_the_secrets_of_its_own_pods_only(cluster: Cluster, namespace: str) -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "token"},
        "stringData": {"key": "value"},
    }
    volume = {"name": "token", "secret": {"secretName": "token"}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "reader"},
        "spec": pod_spec(nodeName="p5en-a-1", volumes=[volume]),
    }
    apply(cluster, namespace, secret, pod)

    def read_as(node: str) -> str:
        return cluster.kubectl(
            f"--kubeconfig={cluster.node_kubeconfig(node)}",
            f"--namespace={namespace}",
            "get",
            "secret",
            "token",
            "--output=jsonpath={.data.key}",
        )

    assert read_as("p5en-a-1") == "dmFsdWU="
    with pytest.raises(ToolError, match="no relationship found between node 'p5en-a-2'"):
        read_as("p5en-a-2")


def test_a_node_does_not_give_itself_the_labels_of_an_administrator(cluster: Cluster) -> None:
    kubeconfig = f"--kubeconfig={cluster.node_kubeconfig('p5en-a-1')}"
    cluster.kubectl(kubeconfig, "label", "node", "p5en-a-1", "example.test/mine=yes")
    with pytest.raises(ToolError, match="is not allowed to modify labels"):
        cluster.kubectl(
            kubeconfig, "label", "node", "p5en-a-1", "node-restriction.kubernetes.io/trusted=yes"
        )
    cluster.kubectl(kubeconfig, "label", "node", "p5en-a-1", "example.test/mine-")


def test_helm_installs_a_chart(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    chart = tmp_path / "chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: small\nversion: 0.1.0\n")
    (chart / "templates" / "map.yaml").write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: made-by-helm}\n"
        "data: {server: {{ .Capabilities.KubeVersion.Version | quote }}}\n"
    )
    cluster.helm("install", "small", str(chart), f"--namespace={namespace}", "--wait")
    data = cluster.kubectl(
        "get",
        "configmap",
        "made-by-helm",
        f"--namespace={namespace}",
        "--output=jsonpath={.data.server}",
    )
    server = json.loads(cluster.kubectl("version", "--output=json"))["serverVersion"]
    assert data == server["gitVersion"]
