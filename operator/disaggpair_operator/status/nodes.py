"""Which node lacks what for a pod that found none: the scheduler counts, this names."""

from collections.abc import Sequence
from typing import Any

from disaggpair_operator.api.quantity import amount
from disaggpair_operator.model import Object

_NODE_LIMIT = 8
_DEVICES = ("nvidia.com/gpu", "vpc.amazonaws.com/efa", "hugepages-2Mi", "cpu", "memory")


def shortfalls(pod: Object, nodes: Sequence[Object]) -> str:
    """One sentence: for every node why this pod cannot run there, by labels, taints and capacity.

    Capacity is a node's whole allocatable; what other pods have taken is the scheduler's to say.
    """
    if not nodes:
        return "the cluster has no node"
    parts = []
    for node in nodes[:_NODE_LIMIT]:
        lacks = node_lacks(pod, node)
        if lacks:
            parts.append(f"{node['metadata']['name']} {', '.join(lacks)}")
        else:
            parts.append(f"{node['metadata']['name']} fits but is taken")
    if len(nodes) > _NODE_LIMIT:
        parts.append(f"and {len(nodes) - _NODE_LIMIT} more nodes")
    return "; ".join(parts)


def node_lacks(pod: Object, node: Object) -> list[str]:
    """What one node lacks for the pod; empty when labels, taints and capacity fit."""
    return [*_label_faults(pod, node), *_state_faults(pod, node), *_capacity_faults(pod, node)]


def _label_faults(pod: Object, node: Object) -> list[str]:
    labels = node["metadata"].get("labels", {})
    required = (
        pod["spec"]
        .get("affinity", {})
        .get("nodeAffinity", {})
        .get("requiredDuringSchedulingIgnoredDuringExecution", {})
        .get("nodeSelectorTerms", [])
    )
    faults = []
    for expression in required[0]["matchExpressions"] if required else []:
        key, allowed = expression["key"], expression["values"]
        if labels.get(key) not in allowed:
            has = f"is {labels[key]}" if key in labels else "is not set"
            faults.append(f"has label {key} that {has}, wanted {' or '.join(allowed)}")
    return faults


def _state_faults(pod: Object, node: Object) -> list[str]:
    spec = node.get("spec", {})
    faults = ["is cordoned"] if spec.get("unschedulable") else []
    tolerations = pod["spec"].get("tolerations", [])
    faults += [
        f"has taint {taint['key']}"
        for taint in spec.get("taints", [])
        if taint["effect"] != "PreferNoSchedule"
        and taint["key"] != "node.kubernetes.io/unschedulable"
        and not any(_tolerates(entry, taint) for entry in tolerations)
    ]
    return faults


def _tolerates(toleration: dict[str, Any], taint: dict[str, Any]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return toleration.get("key", "") in ("", taint["key"])
    return bool(
        toleration.get("key") == taint["key"]
        and toleration.get("value", "") == taint.get("value", "")
    )


def _capacity_faults(pod: Object, node: Object) -> list[str]:
    limits = pod["spec"]["containers"][0].get("resources", {}).get("limits", {})
    offered = node.get("status", {}).get("allocatable", {})
    faults = []
    for name in _DEVICES:
        if name not in limits:
            continue
        has = str(offered.get(name, "0"))
        if amount(has) < amount(str(limits[name])):
            faults.append(f"offers {has} {name}, wanted {limits[name]}")
    return faults
