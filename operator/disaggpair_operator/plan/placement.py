"""Where an engine pod may run: zone, instance type, hosts, devices."""

from typing import Any

from disaggpair_operator import names
from disaggpair_operator.api.v1alpha1 import Fabric, Placement, Role, Toleration
from disaggpair_operator.model import Owner
from disaggpair_operator.plan.kv_transfer import RoleName
from disaggpair_operator.plan.metadata import selector

GPU_RESOURCE = "nvidia.com/gpu"
EFA_RESOURCE = "vpc.amazonaws.com/efa"


def affinity(owner: Owner, placement: Placement, role: RoleName) -> dict[str, Any]:
    """Required node affinity for zone and instance type, and hosts without the other role.

    Zone and instance type are hard: EFA traffic does not cross a zone. The nodeSelector of the
    pair joins as further expressions.
    """
    other = names.DECODE if role == names.PREFILL else names.PREFILL
    wanted = [
        (names.ZONE_LABEL, [placement.zone]),
        (names.INSTANCE_TYPE_LABEL, list(placement.instance_types)),
        *(
            (key, [value])
            for key, value in sorted(placement.node_selector.items())
            if key != names.ZONE_LABEL
        ),
    ]
    expressions = [{"key": key, "operator": "In", "values": values} for key, values in wanted]
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": expressions}]
            }
        },
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "labelSelector": {"matchLabels": selector(owner, other)},
                    "topologyKey": placement.topology_key,
                }
            ]
        },
    }


def toleration(entry: Toleration) -> dict[str, Any]:
    """One toleration in Kubernetes' shape, without empty fields."""
    fields = {
        "key": entry.key,
        "operator": entry.operator,
        "value": entry.value,
        "effect": entry.effect,
    }
    return {key: value for key, value in fields.items() if value}


def resources(fabric: Fabric, role: Role) -> dict[str, Any]:
    """Limits of an engine; extended resources and huge pages cannot be overcommitted."""
    limits: dict[str, str] = {GPU_RESOURCE: str(role.gpus or role.tensor_parallel_size)}
    if fabric.type == "EFA":
        limits[EFA_RESOURCE] = str(fabric.devices)
    if fabric.hugepages:
        limits["hugepages-2Mi"] = fabric.hugepages
    if role.resources.cpu:
        limits["cpu"] = role.resources.cpu
    if role.resources.memory:
        limits["memory"] = role.resources.memory
    return {"limits": limits, "requests": dict(limits)}
