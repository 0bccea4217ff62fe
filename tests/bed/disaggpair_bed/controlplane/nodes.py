"""The process nodes of a bed: what they offer, and the configuration of their process."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from disaggpair_bed.controlplane.kubeconfig import write_kubeconfig
from disaggpair_bed.controlplane.pki import Authority, KeyPair

KUBELET_CLIENT = "kube-apiserver-kubelet-client"
"""User as which the API server asks a node for logs."""


@dataclass(frozen=True)
class NodeSpec:
    """One node, by default a whole p5en.48xlarge."""

    name: str
    zone: str
    instance_type: str = "p5en.48xlarge"
    gpus: int = 8
    efa: int = 16
    cpu: str = "192"
    memory: str = "2Ti"
    hollow: bool = False
    """Pods become Ready without processes, for tests of scale."""


DEFAULT_NODES = (
    NodeSpec("p5en-a-1", "us-east-2a"),
    NodeSpec("p5en-a-2", "us-east-2a"),
    NodeSpec("p5en-b-1", "us-east-2b"),
)
"""Room for a pair in one zone, and one node that its placement must not take."""

_MAX_NODES = 254


def write_nodes_config(
    run_dir: Path,
    specs: Sequence[NodeSpec],
    *,
    prefix: str,
    server: str,
    authority: Authority,
    images: Path,
) -> Path:
    """Write credentials and configuration of all nodes, and return the configuration.

    Node `i` has the address `PREFIX.i.1` and gives its pods others of `PREFIX.i`. Its kubeconfig,
    `nodes/NAME.kubeconfig`, makes it system:node:NAME, so the Node authorizer bounds what it may
    read and NodeRestriction what it may write.

    Raises:
        ValueError: there are more nodes than one prefix has room for.
    """
    if len(specs) > _MAX_NODES:
        raise ValueError(f"{len(specs)} nodes: a bed has room for {_MAX_NODES}")
    entries: list[dict[str, Any]] = []
    for number, spec in enumerate(specs):
        address = f"{prefix}.{number}.1"
        serving = authority.issue_server([address, spec.name], name=f"node-{spec.name}-serving")
        kubeconfig = write_node_identity(run_dir, spec.name, server, authority)
        entries.append(
            {
                "name": spec.name,
                "kubeconfig": str(kubeconfig),
                "address": address,
                "podPrefix": f"{prefix}.{number}",
                "zone": spec.zone,
                "instanceType": spec.instance_type,
                "gpus": spec.gpus,
                "efa": spec.efa,
                "cpu": spec.cpu,
                "memory": spec.memory,
                "hollow": spec.hollow,
                **_log_endpoint(serving, authority.certificate),
            }
        )
    config = {
        "server": server,
        "runDir": str(run_dir / "pods"),
        "images": str(images),
        "nodes": entries,
    }
    path = run_dir / "nodes.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return path


def write_node_identity(run_dir: Path, name: str, server: str, authority: Authority) -> Path:
    """Write the kubeconfig of one node and return its path."""
    user = f"system:node:{name}"
    pair = authority.issue_client(user, ["system:nodes"], name=f"node-{name}")
    path = run_dir / "nodes" / f"{name}.kubeconfig"
    write_kubeconfig(path, server, authority.certificate, user, pair)
    return path


def _log_endpoint(serving: KeyPair, client_authority: Path) -> dict[str, str]:
    return {
        "servingCert": str(serving.certificate),
        "servingKey": str(serving.key),
        "clientCA": str(client_authority),
        "clientName": KUBELET_CLIENT,
    }
