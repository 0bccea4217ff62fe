"""The keys of a pair and the user's: which Secret holds them, and how pods are given them.

No value is here.
"""

from typing import Any, Final

from disaggpair_connector import contract
from disaggpair_operator import names
from disaggpair_operator.api.v1alpha1 import KeyRef, Spec
from disaggpair_operator.api.v1alpha1.engine import API_KEY_VARIABLE
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
    return [*_lease_key(owner, spec), *_api_key(spec, API_KEY_VARIABLE)]


def router_keys(owner: Owner, spec: Spec) -> list[dict[str, Any]]:
    """Environment with the keys that a router needs."""
    keys = _lease_key(owner, spec)
    if has_leases(spec):
        keys.append(_own(owner, contract.CONVERSATION_KEY_ENV, CONVERSATION_KEY))
    return [*keys, *_api_key(spec, contract.ENGINE_KEY_ENV)]


def variable(name: str, ref: KeyRef) -> dict[str, Any]:
    """A variable whose value is a key of a Secret."""
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": ref.name, "key": ref.key}}}


def _lease_key(owner: Owner, spec: Spec) -> list[dict[str, Any]]:
    return [_own(owner, contract.LEASE_KEY_ENV, LEASE_KEY)] if has_leases(spec) else []


def _api_key(spec: Spec, name: str) -> list[dict[str, Any]]:
    ref = spec.engine.api_key_secret_ref
    return [variable(name, ref)] if ref else []


def _own(owner: Owner, name: str, key: str) -> dict[str, Any]:
    return variable(name, KeyRef(name=names.child_name(owner.name, names.KEYS), key=key))
