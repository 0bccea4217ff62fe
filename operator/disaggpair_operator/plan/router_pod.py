"""One pod of the pair's router."""

from typing import Any, Final

from disaggpair_operator import names
from disaggpair_operator.api.v1alpha1 import Router, Spec
from disaggpair_operator.model import Facts, Owner
from disaggpair_operator.plan.keys import router_keys, variable
from disaggpair_operator.plan.router_config import API_PORT, METRICS_PORT, TENANTS_FOLDER, drain_s

CONFIG_FOLDER: Final = "/etc/disaggpair"
CONFIG_FILE: Final = "router.json"

SCRATCH_FOLDER: Final = "/run/disaggpair"
"""Where the processes of a pod meet: its root file system is read-only."""
_SCRATCH: Final = "scratch"
OTLP_HEADERS_ENV: Final = "OTEL_EXPORTER_OTLP_HEADERS"


_LINGER_S: Final = 3
"""From a pod's deletion to its SIGTERM, at which the router closes its port: nodes and load
balancers learn of the deletion a moment later, and send it clients until then."""
_END_S: Final = 12
"""After the drain: releasing handles, and closing what is left."""


def router_pod(owner: Owner, spec: Spec, facts: Facts) -> dict[str, Any]:
    """The pod's spec. Its grace period covers the pause before the drain, the drain and the end."""
    volumes = _volumes(owner, spec)
    container = {
        "name": names.ROUTER,
        "image": facts.router_image,
        "imagePullPolicy": facts.router_pull_policy,
        "command": ["disaggpair"],
        "args": [
            "router",
            "--config",
            f"{CONFIG_FOLDER}/{CONFIG_FILE}",
            *(["--host", "$(POD_IP)"] if facts.bind == "PodIP" else []),
            *(["--log-format", "json"] if spec.router.log_format == "JSON" else []),
        ],
        "env": _environment(owner, spec),
        "ports": [
            {"name": "http", "containerPort": API_PORT, "protocol": "TCP"},
            {"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"},
        ],
        "resources": _resources(spec.router),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "readinessProbe": {
            "httpGet": {"path": "/readyz", "port": "http", "scheme": "HTTP"},
            "periodSeconds": 2,
            "timeoutSeconds": 2,
            "failureThreshold": 2,
        },
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": "http", "scheme": "HTTP"},
            "periodSeconds": 10,
            "timeoutSeconds": 5,
            "failureThreshold": 6,
        },
        "lifecycle": {"preStop": {"sleep": {"seconds": _LINGER_S}}},
        "volumeMounts": [
            {
                "name": name,
                "mountPath": path,
                **({} if "emptyDir" in source else {"readOnly": True}),
            }
            for name, (path, source) in volumes.items()
        ],
    }
    name = names.child_name(owner.name, names.ROUTER)
    return {
        "affinity": {
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 100,
                        "preference": {
                            "matchExpressions": [
                                {
                                    "key": names.ZONE_LABEL,
                                    "operator": "In",
                                    "values": [spec.placement.zone],
                                }
                            ]
                        },
                    }
                ]
            }
        },
        "containers": [container],
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65_532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "serviceAccountName": name,
        "terminationGracePeriodSeconds": _LINGER_S + drain_s(spec) + _END_S,
        "volumes": [{"name": volume, **source} for volume, (_, source) in volumes.items()],
    }


def _environment(owner: Owner, spec: Spec) -> list[dict[str, Any]]:
    pod_ip = {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}
    env = [{"name": "POD_IP", "valueFrom": pod_ip}, *router_keys(owner, spec)]
    traces = spec.router.tracing
    if traces and traces.headers_secret_ref:
        env.append(variable(OTLP_HEADERS_ENV, traces.headers_secret_ref))
    if spec.router.workers > 1:
        env.append({"name": "TMPDIR", "value": SCRATCH_FOLDER})
    return env


def _volumes(owner: Owner, spec: Spec) -> dict[str, tuple[str, dict[str, Any]]]:
    """Volumes by name: the folder where each is mounted, and what is in it."""
    config = {"configMap": {"name": names.child_name(owner.name, names.ROUTER)}}
    volumes: dict[str, tuple[str, dict[str, Any]]] = {"config": (CONFIG_FOLDER, config)}
    auth = spec.router.auth
    if auth and auth.api_keys_secret_ref:
        # Not optional: without the Secret the router waits, and does not serve everybody or nobody.
        secret = {"secret": {"secretName": auth.api_keys_secret_ref.name}}
        volumes["tenants"] = (TENANTS_FOLDER, secret)
    if spec.router.workers > 1:
        volumes[_SCRATCH] = (SCRATCH_FOLDER, {"emptyDir": {"sizeLimit": "16Mi"}})
    return volumes


def _resources(router: Router) -> dict[str, Any]:
    """What is given is requested and limited; the rest follows the number of processes."""
    given = {
        name: value
        for name, value in (("cpu", router.resources.cpu), ("memory", router.resources.memory))
        if value
    }
    follows = {
        "cpu": str(router.workers),
        "memory": f"{-(-router.workers * router.limits.process_bytes // 2**20)}Mi",
    }
    return {**({"limits": given} if given else {}), "requests": {**follows, **given}}
