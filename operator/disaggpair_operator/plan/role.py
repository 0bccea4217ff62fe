"""One role's engines: a Deployment and a headless Service."""

import math
from typing import Any

from disaggpair_operator import names
from disaggpair_operator.api.v1alpha1 import ModelCache, Spec
from disaggpair_operator.model import Facts, Owner
from disaggpair_operator.plan.engine_args import (
    HTTP_PORT,
    MODEL_CACHE_PATH,
    engine_arguments,
    engine_environment,
    engine_ports,
    role_spec,
)
from disaggpair_operator.plan.kv_transfer import RoleName
from disaggpair_operator.plan.metadata import child, labels, selector
from disaggpair_operator.plan.placement import affinity, resources, toleration
from disaggpair_operator.plan.releases import Release

CONTAINER = "engine"
_PROBE_PERIOD_S = 5
# Added to the drain time before the kubelet kills: aborting what is left and unloading CUDA.
_UNLOAD_S = 15


def role_deployment(
    owner: Owner, spec: Spec, release: Release, revision: str, facts: Facts, role: RoleName
) -> dict[str, Any]:
    """Deployment of one role. Suspended pairs keep it with no replicas."""
    part = role_spec(spec, role)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": child(owner, role),
        "spec": {
            "replicas": 0 if spec.suspend else part.replicas,
            "revisionHistoryLimit": 2,
            "progressDeadlineSeconds": part.startup_seconds + 600,
            "selector": {"matchLabels": selector(owner, role)},
            # A surge would need GPUs that a full node does not have, and wait for ever.
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
            },
            "template": {
                "metadata": {
                    "labels": {**labels(owner, role), names.REVISION_LABEL: revision},
                    "annotations": {"kubectl.kubernetes.io/default-container": CONTAINER},
                },
                "spec": _pod_spec(owner, spec, release, facts, role),
            },
        },
    }


def role_service(owner: Owner, role: RoleName) -> dict[str, Any]:
    """Headless Service: a stable name for scraping and for people, not for the router."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": child(owner, role),
        "spec": {
            "clusterIP": "None",
            "selector": selector(owner, role),
            "ports": [
                {"name": "http", "port": HTTP_PORT, "targetPort": "http", "protocol": "TCP"},
            ],
        },
    }


def _pod_spec(
    owner: Owner, spec: Spec, release: Release, facts: Facts, role: RoleName
) -> dict[str, Any]:
    part = role_spec(spec, role)
    volumes: list[dict[str, Any]] = [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": part.shared_memory}}
    ]
    mounts: list[dict[str, Any]] = [{"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108 - a volume of the pod
    if spec.model.cache:
        volumes.append({"name": "models", **_cache_volume(spec.model.cache)})
        mounts.append({"name": "models", "mountPath": MODEL_CACHE_PATH})
    container = {
        "name": CONTAINER,
        "image": spec.engine.image,
        "imagePullPolicy": spec.engine.pull_policy,
        "command": ["vllm", "serve"],
        "args": engine_arguments(spec, release, role, facts.bind),
        "env": engine_environment(owner, spec, role),
        "ports": [
            {"name": name, "containerPort": port, "protocol": "TCP"}
            for name, port in engine_ports(spec).items()
        ],
        "resources": resources(spec.fabric, part),
        "securityContext": _security_context(spec),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
        **_probes(part.startup_seconds),
    }
    return {
        "affinity": affinity(owner, spec.placement, role),
        "automountServiceAccountToken": False,
        "containers": [container],
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": spec.rollout.drain_seconds + _UNLOAD_S,
        "tolerations": [toleration(entry) for entry in spec.placement.tolerations],
        "volumes": volumes,
    }


def _cache_volume(cache: ModelCache) -> dict[str, Any]:
    if cache.claim:
        return {"persistentVolumeClaim": {"claimName": cache.claim}}
    if cache.host_path:
        return {"hostPath": {"path": cache.host_path, "type": "DirectoryOrCreate"}}
    return {"emptyDir": {}}


def _security_context(spec: Spec) -> dict[str, Any]:
    if spec.fabric.security == "Privileged":
        return {"privileged": True}
    context: dict[str, Any] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if spec.fabric.type == "EFA":
        # EFA registers memory, which needs the capability, and an added capability has no effect
        # in a container that does not run as root.
        context["capabilities"]["add"] = ["IPC_LOCK"]
        context["runAsUser"] = 0
    return context


def _probes(startup_s: int) -> dict[str, Any]:
    health = {"httpGet": {"path": "/health", "port": "http", "scheme": "HTTP"}}
    return {
        # Before the model is loaded the engine refuses connections.
        "startupProbe": {
            **health,
            "periodSeconds": _PROBE_PERIOD_S,
            "timeoutSeconds": 5,
            "failureThreshold": math.ceil(startup_s / _PROBE_PERIOD_S),
        },
        "readinessProbe": {
            **health,
            "periodSeconds": _PROBE_PERIOD_S,
            "timeoutSeconds": 5,
            "failureThreshold": 3,
        },
        # /health answers 503 once the engine core died; a busy core answers late, never wrongly.
        "livenessProbe": {
            **health,
            "periodSeconds": 10,
            "timeoutSeconds": 10,
            "failureThreshold": 6,
        },
    }
