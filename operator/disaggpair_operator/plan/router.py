"""The pair's router: configuration, Deployment, Service and the account that watches pods."""

import hashlib
from typing import Any

from disaggpair_operator import names
from disaggpair_operator.api.v1alpha1 import Spec
from disaggpair_operator.model import Facts, Owner
from disaggpair_operator.plan.metadata import child, labels, selector
from disaggpair_operator.plan.policy import disruption_budget
from disaggpair_operator.plan.releases import Release
from disaggpair_operator.plan.router_config import router_file
from disaggpair_operator.plan.router_pod import CONFIG_FILE, router_pod


def router_objects(
    owner: Owner, spec: Spec, release: Release, facts: Facts
) -> list[dict[str, Any]]:
    """All objects of the router, in the order of application."""
    text = router_file(owner, spec, release)
    return [
        _config_map(owner, text),
        _service_account(owner),
        *_pod_reader(owner),
        *([disruption_budget(owner, names.ROUTER)] if spec.router.replicas > 1 else []),
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
                "spec": router_pod(owner, spec, facts),
            },
        },
    }


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
