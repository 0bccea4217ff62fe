"""Frozen values that travel between the stages: observe, plan, apply, status. No logic.

An Object is a Kubernetes object as the API server gives it or takes it: a plain mapping. It is
never changed after it was made.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Object = Mapping[str, Any]
"""A Kubernetes object with apiVersion, kind and metadata."""

Bind = Literal["AllInterfaces", "PodIP"]
"""Which address engines and router listen on inside their pod."""


@dataclass(frozen=True)
class Ref:
    """Where an object is: enough to read or delete it."""

    api_version: str
    kind: str
    namespace: str
    """Empty for cluster-scoped kinds."""
    name: str

    def __str__(self) -> str:
        return (
            f"{self.kind} {self.namespace}/{self.name}"
            if self.namespace
            else (f"{self.kind} {self.name}")
        )


@dataclass(frozen=True)
class Facts:
    """What the plan needs to know besides the pair: the operator's own settings."""

    router_image: str
    """Image with the `disaggpair` command."""
    router_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    bind: Bind = "AllInterfaces"


@dataclass(frozen=True)
class Owner:
    """Identity of the DisaggPair that children belong to."""

    name: str
    namespace: str
    uid: str
    generation: int
    deleting: bool = False
    """deletionTimestamp is set: nothing may be created any more."""


@dataclass(frozen=True)
class SecretUse:
    """A Secret of the user's that the pair names."""

    field: str
    """Field that names it, such as spec.model.tokenSecretRef."""
    name: str
    key: str = ""
    """Key in it; empty where all of its entries are used."""


@dataclass(frozen=True)
class Observed:
    """What the API server held when the reconcile began."""

    owner: Owner
    children: tuple[Object, ...] = ()
    """Objects of the kinds the plan makes whose controller reference has the owner's UID."""
    pods: tuple[Object, ...] = ()
    """Pods that carry the pair's label."""
    nodes: tuple[Object, ...] = ()
    """Nodes of the cluster; read only while a pod of the pair waits for one."""
    secrets: Mapping[str, frozenset[str] | None] = field(default_factory=dict)
    """Keys that have a value in the Secrets that the pair names; None for one that is not there.
    Left out is what the operator may not look at."""


@dataclass(frozen=True)
class KeySecret:
    """A Secret whose values are drawn once and then neither read, shown nor changed."""

    obj: Object
    """The Secret without data."""
    keys: tuple[str, ...]
    """Keys of its data; one without a value gets a random one."""


@dataclass(frozen=True)
class SecretView:
    """What the operator looks at of a Secret that exists."""

    obj: Object
    """The Secret without data."""
    filled: frozenset[str]
    """Keys of its data that have a value."""


@dataclass(frozen=True)
class Plan:
    """What should exist for one pair."""

    revision: str
    """Hash of what both roles share."""
    objects: tuple[Object, ...]
    """Full objects for server-side apply, in the order of application."""
    secrets: tuple[KeySecret, ...] = ()
    """Secrets that the objects refer to; never pruned, since they end with the pair."""
    uses: tuple[SecretUse, ...] = ()
    """Secrets of the user's that the pair names."""
    endpoint: str = ""
    """Base URL of the pair's API inside the cluster."""
    risk: str = ""
    """What is unsafe about the engine's release; empty when nothing is."""


@dataclass(frozen=True)
class Failure:
    """One object that could not be applied or pruned."""

    ref: Ref
    reason: Literal["NotOurs", "Invalid", "Forbidden", "Conflict", "Unavailable"]
    message: str
    """Sentence for the user."""


@dataclass(frozen=True)
class Applied:
    """What the apply stage did."""

    changed: tuple[Ref, ...] = ()
    pruned: tuple[Ref, ...] = ()
    failures: tuple[Failure, ...] = field(default=())
