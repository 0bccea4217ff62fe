"""The pair's own keys: which Secret holds them, and how pods are given them. No value is here."""

from typing import Any, Final

from disaggpair_connector import contract
from disaggpair_operator import names
from disaggpair_operator.api.v1alpha1 import Spec
from disaggpair_operator.model import KeySecret, Owner
from disaggpair_operator.plan.kv_transfer import has_leases
from disaggpair_operator.plan.metadata import child

LEASE_KEY: Final = "lease-key"
"""With it a router lists, watches and claims the leases of the pair's engines."""
CONVERSATION_KEY: Final = "conversation-key"
"""Under it the pair's routers make the same keys of conversations."""


def key_secrets(owner: Owner, spec: Spec) -> tuple[KeySecret, ...]:
    """The Secret with the pair's keys; none without leases, where one router keeps the handles."""
    if not has_leases(spec):
        return ()
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": child(owner, names.KEYS),
        "type": "Opaque",
    }
    return (KeySecret(secret, (LEASE_KEY, CONVERSATION_KEY)),)


def engine_keys(owner: Owner, spec: Spec) -> list[dict[str, Any]]:
    """Environment with the keys that an engine needs."""
    if not has_leases(spec):
        return []
    return [_variable(owner, contract.LEASE_KEY_ENV, LEASE_KEY)]


def router_keys(owner: Owner, spec: Spec) -> list[dict[str, Any]]:
    """Environment with the keys that a router needs."""
    if not has_leases(spec):
        return []
    return [
        *engine_keys(owner, spec),
        _variable(owner, contract.CONVERSATION_KEY_ENV, CONVERSATION_KEY),
    ]


def _variable(owner: Owner, variable: str, key: str) -> dict[str, Any]:
    secret = names.child_name(owner.name, names.KEYS)
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}
