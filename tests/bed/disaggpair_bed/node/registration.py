"""The Node object, its status and its Lease: built here, without I/O."""

import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from disaggpair_bed.node.config import NodeConfig

LEASE_S = 40
HEARTBEAT_S = 10.0
"""Time between two renewals of the Lease."""
STATUS_S = 300.0
"""Time between two reports of an unchanged status."""
VERSION = "v1.36.3"

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def rfc3339(now: datetime) -> str:
    """The API's time format, whole seconds."""
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def node_labels(config: NodeConfig) -> dict[str, str]:
    """Labels of the Node object."""
    return {
        "kubernetes.io/hostname": config.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": _arch(),
        "node.kubernetes.io/instance-type": config.instance_type,
        "topology.kubernetes.io/zone": config.zone,
        "topology.kubernetes.io/region": config.region,
        **config.labels,
    }


def node_object(config: NodeConfig) -> dict[str, Any]:
    """The object to create."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": config.name, "labels": node_labels(config)},
        "spec": {"providerID": f"bed:///{config.zone}/{config.name}"},
    }


def resources(config: NodeConfig, efa_gone: bool = False) -> dict[str, str]:
    """Capacity; with `efa_gone` what is allocatable after the EFA devices failed."""
    figures = {
        "cpu": config.cpu,
        "memory": config.memory,
        "ephemeral-storage": config.ephemeral_storage,
        "pods": str(config.pods),
    }
    if config.gpus:
        figures["nvidia.com/gpu"] = str(config.gpus)
    if config.efa:
        figures["vpc.amazonaws.com/efa"] = "0" if efa_gone else str(config.efa)
    return figures


def node_status(
    config: NodeConfig, now: datetime, ready_since: str, efa_gone: bool
) -> dict[str, Any]:
    """The status of a node that works; `ready_since` is when it came up."""
    machine = platform.uname()
    return {
        "capacity": resources(config),
        "allocatable": resources(config, efa_gone),
        "addresses": [
            {"type": "InternalIP", "address": config.address},
            {"type": "Hostname", "address": config.name},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": config.port}},
        "conditions": [
            _condition(kind, status, reason, message, now, ready_since)
            for kind, status, reason, message in (
                ("MemoryPressure", "False", "KubeletHasSufficientMemory", "memory is not watched"),
                ("DiskPressure", "False", "KubeletHasNoDiskPressure", "disks are not watched"),
                ("PIDPressure", "False", "KubeletHasSufficientPID", "PIDs are not watched"),
                ("Ready", "True", "KubeletReady", "process node is posting ready status"),
            )
        ],
        "nodeInfo": {
            "architecture": _arch(),
            "operatingSystem": "linux",
            "osImage": "process node",
            "kernelVersion": machine.release,
            "kubeletVersion": VERSION,
            "kubeProxyVersion": "",
            "containerRuntimeVersion": "process://1",
            "machineID": config.name,
            "systemUUID": config.name,
            "bootID": ready_since,
        },
    }


def lease_object(config: NodeConfig, now: datetime) -> dict[str, Any]:
    """The Lease whose renewal is the node's heartbeat."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": config.name},
        "spec": {
            "holderIdentity": config.name,
            "leaseDurationSeconds": LEASE_S,
            "renewTime": now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        },
    }


def _condition(
    kind: str, status: str, reason: str, message: str, now: datetime, since: str
) -> Mapping[str, str]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": rfc3339(now),
        "lastTransitionTime": since,
    }


def _arch() -> str:
    machine = platform.machine()
    return _ARCHITECTURES.get(machine, machine)
