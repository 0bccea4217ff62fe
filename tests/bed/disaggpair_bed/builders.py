"""Builders of objects for tests: complete by default, changed by what a test is about."""

import copy
import json
from collections.abc import Mapping
from typing import Any

from disaggpair_operator import names
from disaggpair_operator.api.v1alpha1 import DisaggPair
from disaggpair_operator.model import Facts, Object, Observed, Owner, Plan

FACTS = Facts(router_image="example/disaggpair:v0.1.0")


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `base` with `changes` laid over it, mapping by mapping."""
    result: dict[str, Any] = copy.deepcopy(dict(base))
    for key, value in changes.items():
        old = result.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        result[key] = merged(old, value) if both else copy.deepcopy(value)  # type: ignore[arg-type]  # both are
    return result


def spec(changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A raw spec that is accepted: EFA, vLLM 0.33, zone us-east-2a."""
    base = {
        "model": {"name": "Qwen/Qwen3-32B"},
        "engine": {"image": "example/vllm:v0.33.0"},
        "placement": {"zone": "us-east-2a"},
    }
    return merged(base, changes or {})


def pair(changes: Mapping[str, Any] | None = None) -> DisaggPair:
    """The parsed pair of `spec`."""
    return DisaggPair.model_validate_json(json.dumps({"spec": spec(changes)}))


def raw_pair(
    changes: Mapping[str, Any] | None = None, name: str = "chat", namespace: str = "default"
) -> dict[str, Any]:
    """The raw object of `spec`, as one would apply it."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec(changes),
    }


def owner(name: str = "chat", **changes: Any) -> Owner:
    """Identity of a pair in namespace default with UID u-1 and generation 1."""
    fields: dict[str, Any] = {"namespace": "default", "uid": "u-1", "generation": 1, **changes}
    return Owner(name=name, **fields)


def engine_pod(plan: Plan, part: str, **changes: Any) -> dict[str, Any]:
    """A pod of one part as the Deployment controller makes it, placed on node `<part>-node`."""
    deployment = planned(plan, "Deployment", part)
    template = copy.deepcopy(dict(deployment["spec"]["template"]))
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{deployment['metadata']['name']}-0",
            "namespace": deployment["metadata"]["namespace"],
            "labels": template["metadata"]["labels"],
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": f"{deployment['metadata']['name']}-5b48a265be",
                    "uid": "rs-1",
                    "controller": True,
                }
            ],
        },
        "spec": {**template["spec"], "nodeName": f"{part}-node"},
        "status": {},
    }
    return merged(pod, changes)


def planned(plan: Plan, kind: str, part: str) -> Object:
    """The plan's one object of a kind that belongs to a part."""
    (found,) = [
        obj
        for obj in plan.objects
        if obj["kind"] == kind and obj["metadata"]["labels"][names.ROLE_LABEL] == part
    ]
    return found


def live_deployment(plan: Plan, part: str, ready: int = 1, **changes: Any) -> dict[str, Any]:
    """A part's Deployment as the API server holds it, seen and updated by its controller."""
    deployment = copy.deepcopy(dict(planned(plan, "Deployment", part)))
    deployment["metadata"]["generation"] = 1
    deployment["status"] = {
        "observedGeneration": 1,
        "replicas": deployment["spec"]["replicas"],
        "updatedReplicas": deployment["spec"]["replicas"],
        "readyReplicas": ready,
    }
    return merged(deployment, changes)


def serving(plan: Plan, of: Owner) -> Observed:
    """Everything of the plan is there, ready and up to date."""
    parts = (names.PREFILL, names.DECODE, names.ROUTER)
    return Observed(
        owner=of,
        children=tuple(live_deployment(plan, part) for part in parts),
        pods=tuple(engine_pod(plan, part) for part in parts),
    )


def node(name: str, **changes: Any) -> dict[str, Any]:
    """A p5en node of zone us-east-2a with 8 GPUs and 16 EFA devices."""
    base = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                names.ZONE_LABEL: "us-east-2a",
                names.INSTANCE_TYPE_LABEL: "p5en.48xlarge",
            },
        },
        "spec": {},
        "status": {
            "allocatable": {
                "cpu": "192",
                "memory": "2Ti",
                "nvidia.com/gpu": "8",
                "vpc.amazonaws.com/efa": "16",
            }
        },
    }
    return merged(base, changes)
