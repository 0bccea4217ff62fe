"""What protects a pair: who may reach the engines, and how many may be taken away at once."""

from typing import Any

from disaggpair_operator import names
from disaggpair_operator.model import Owner
from disaggpair_operator.plan.kv_transfer import RoleName
from disaggpair_operator.plan.metadata import child, selector


def engine_policy(owner: Owner) -> dict[str, Any]:
    """Only the pair's own pods reach its engines.

    All ports, the leases' among them, because NIXL's transports choose their own; vLLM's API has no
    authentication, and anyone who reaches it can free or read KV blocks.
    """
    pair = {names.PAIR_LABEL: names.label_value(owner.name)}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": child(owner, "engines"),
        "spec": {
            "podSelector": {
                "matchLabels": pair,
                "matchExpressions": [
                    {
                        "key": names.ROLE_LABEL,
                        "operator": "In",
                        "values": [names.PREFILL, names.DECODE],
                    }
                ],
            },
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"podSelector": {"matchLabels": pair}}]}],
        },
    }


def disruption_budget(owner: Owner, role: RoleName) -> dict[str, Any]:
    """One engine of a role at a time; engines that never became ready do not block a drain."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": child(owner, role),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": selector(owner, role)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
