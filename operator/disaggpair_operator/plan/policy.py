"""What protects a pair: who may reach the engines, and how many may be taken away at once."""

from typing import Any, Final

from disaggpair_operator import names
from disaggpair_operator.api.v1alpha1 import Spec
from disaggpair_operator.model import Owner
from disaggpair_operator.plan.engine_args import engine_ports
from disaggpair_operator.plan.metadata import child, selector

_ROUTER_PORTS: Final = ("http", "leases")
"""Ports of an engine that the router uses."""


def engine_policy(owner: Owner, spec: Spec) -> dict[str, Any]:
    """Only the pair's roles and its router reach its engines.

    The roles reach each other on all ports, because NIXL's transports choose their own. vLLM's API
    and its side channel have no authentication, and who reaches them can free or read KV blocks.
    """
    engines = {
        "matchLabels": {names.PAIR_LABEL: names.label_value(owner.name)},
        "matchExpressions": [
            {
                "key": names.ROLE_LABEL,
                "operator": "In",
                "values": [names.PREFILL, names.DECODE],
            }
        ],
    }
    router = {"matchLabels": selector(owner, names.ROUTER)}
    ports = engine_ports(spec)
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": child(owner, "engines"),
        "spec": {
            "podSelector": engines,
            "policyTypes": ["Ingress"],
            "ingress": [
                {"from": [{"podSelector": engines}]},
                {
                    "from": [{"podSelector": router}],
                    "ports": [
                        {"protocol": "TCP", "port": ports[name]}
                        for name in _ROUTER_PORTS
                        if name in ports
                    ],
                },
            ],
        },
    }


def disruption_budget(owner: Owner, part: str) -> dict[str, Any]:
    """One pod of a part at a time; pods that never became ready do not block a drain."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": child(owner, part),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": selector(owner, part)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
