"""A pod as an endpoint: what of its state decides whether it may serve. Pure; used by `pods`."""

from collections.abc import Mapping
from typing import Any, Final, get_args

from disaggpair_router.pick import Endpoint, Role

# The operator's names, repeated because the router imports nothing of it; a test compares them.
PAIR_LABEL: Final = "disaggpair.dev/pair"
ROLE_LABEL: Final = "disaggpair.dev/role"
REVISION_LABEL: Final = "disaggpair.dev/revision"
ENGINE_CONTAINER: Final = "engine"

ZONE_LABEL: Final = "topology.kubernetes.io/zone"
"""Copied from the node to its pods by the API server since Kubernetes 1.35."""

_ROLES: Final[Mapping[str, Role]] = {role: role for role in get_args(Role)}


def endpoint_of(pod: Mapping[str, Any], port: int) -> Endpoint | None:
    """The endpoint a pod is now; None for a pod without a role or an address, or one that ends.

    A terminating engine leaves at once, before its probes fail: the blocks behind its handles
    are lost with it.
    """
    metadata, status = pod.get("metadata") or {}, pod.get("status") or {}
    labels = metadata.get("labels") or {}
    role = _ROLES.get(labels.get(ROLE_LABEL, ""))
    address = status.get("podIP")
    over = metadata.get("deletionTimestamp") or status.get("phase") in ("Succeeded", "Failed")
    if role is None or not address or over:
        return None
    host = f"[{address}]" if ":" in address else address
    return Endpoint(
        name=metadata["uid"],
        url=f"http://{host}:{port}",
        role=role,
        ready=_is_ready(status),
        incarnation=_incarnation(status),
        revision=labels.get(REVISION_LABEL, ""),
        zone=labels.get(ZONE_LABEL, ""),
    )


def _is_ready(status: Mapping[str, Any]) -> bool:
    return any(
        condition.get("type") == "Ready" and condition.get("status") == "True"
        for condition in status.get("conditions") or ()
    )


def _incarnation(status: Mapping[str, Any]) -> str:
    for container in status.get("containerStatuses") or ():
        if container.get("name") == ENGINE_CONTAINER:
            return f"{container.get('restartCount', 0)} {container.get('containerID', '')}"
    return ""
