"""The pair's router: configuration, Deployment, Service and the account that watches pods."""

import hashlib
from typing import Any

from disaggpair_operator import names
from disaggpair_operator.api.v1alpha1 import Resources, Spec
from disaggpair_operator.model import Facts, Owner
from disaggpair_operator.plan.engine_args import HTTP_PORT
from disaggpair_operator.plan.keys import router_keys
from disaggpair_operator.plan.kv_transfer import verifies_reads
from disaggpair_operator.plan.metadata import child, labels, selector
from disaggpair_operator.plan.releases import Release
from disaggpair_router.config import KVTransfer, PodEndpoints, RouterConfig, Timeouts

API_PORT = 8000
METRICS_PORT = 9090
CONFIG_FOLDER = "/etc/disaggpair"
CONFIG_FILE = "router.json"


def router_config(owner: Owner, spec: Spec, release: Release) -> RouterConfig:
    """What the pair's router is told."""
    return RouterConfig(
        pair=owner.name,
        port=API_PORT,
        metrics_port=METRICS_PORT,
        endpoints=PodEndpoints(
            namespace=owner.namespace, pair=names.label_value(owner.name), port=HTTP_PORT
        ),
        kv=KVTransfer(
            bidirectional=spec.kv_transfer.bidirectional,
            handle_in_stream=release.handle_in_stream,
            handle_ttl_s=spec.router.handle_ttl_seconds,
            decode_ttl_s=spec.kv_transfer.decode_ttl_seconds,
            verified_reads=verifies_reads(spec),
        ),
        fallback=spec.router.fallback,
        timeouts=Timeouts(drain_s=max(1, spec.rollout.drain_seconds)),
    )


def router_objects(
    owner: Owner, spec: Spec, release: Release, facts: Facts
) -> list[dict[str, Any]]:
    """All objects of the router, in the order of application."""
    text = router_config(owner, spec, release).model_dump_json(indent=2) + "\n"
    return [
        _config_map(owner, text),
        _service_account(owner),
        *_pod_reader(owner),
        _deployment(owner, spec, facts, text),
        _service(owner, spec),
    ]


def _config_map(owner: Owner, text: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": child(owner, names.ROUTER),
        "data": {CONFIG_FILE: text},
    }


def _service_account(owner: Owner) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": child(owner, names.ROUTER),
        "automountServiceAccountToken": True,
    }


def _pod_reader(owner: Owner) -> list[dict[str, Any]]:
    name = names.child_name(owner.name, names.ROUTER)
    return [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": child(owner, names.ROUTER),
            "rules": [
                {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
            ],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": child(owner, names.ROUTER),
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "Role",
                "name": name,
            },
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": owner.namespace}],
        },
    ]


def _deployment(owner: Owner, spec: Spec, facts: Facts, config: str) -> dict[str, Any]:
    digest = hashlib.sha256(config.encode()).hexdigest()[:16]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": child(owner, names.ROUTER),
        "spec": {
            "replicas": 0 if spec.suspend else spec.router.replicas,
            "revisionHistoryLimit": 2,
            "selector": {"matchLabels": selector(owner, names.ROUTER)},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
            },
            "template": {
                "metadata": {
                    "labels": labels(owner, names.ROUTER),
                    # A mounted ConfigMap changes under a running process, which reads it once.
                    "annotations": {names.CONFIG_HASH_ANNOTATION: digest},
                },
                "spec": _pod_spec(owner, spec, facts),
            },
        },
    }


def _pod_spec(owner: Owner, spec: Spec, facts: Facts) -> dict[str, Any]:
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
        ],
        "env": [
            {
                "name": "POD_IP",
                "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}},
            },
            *router_keys(owner, spec),
        ],
        "ports": [
            {"name": "http", "containerPort": API_PORT, "protocol": "TCP"},
            {"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"},
        ],
        "resources": _resources(spec.router.resources),
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
        "volumeMounts": [{"name": "config", "mountPath": CONFIG_FOLDER, "readOnly": True}],
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
        "terminationGracePeriodSeconds": spec.rollout.drain_seconds + 15,
        "volumes": [{"name": "config", "configMap": {"name": name}}],
    }


def _resources(resources: Resources) -> dict[str, Any]:
    limits = {"cpu": resources.cpu, "memory": resources.memory}
    given = {name: value for name, value in limits.items() if value}
    return {"limits": given, "requests": dict(given)} if given else {}


def _service(owner: Owner, spec: Spec) -> dict[str, Any]:
    metadata = child(owner, names.ROUTER)
    if spec.router.service.annotations:
        metadata["annotations"] = dict(sorted(spec.router.service.annotations.items()))
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "type": spec.router.service.type,
            "selector": selector(owner, names.ROUTER),
            "ports": [
                {
                    "name": "http",
                    "port": spec.router.service.port,
                    "targetPort": "http",
                    "protocol": "TCP",
                }
            ],
        },
    }
