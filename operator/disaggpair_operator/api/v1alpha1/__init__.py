"""The DisaggPair API, version v1alpha1: the one source of the CRD, its rules and its reference.

Field text comes from the attribute docstrings. A default of `spec` that is not empty is stored
with the object (docs/decisions/0003), so changing one changes new objects only.
"""

from disaggpair_operator.api.rules import Part
from disaggpair_operator.api.v1alpha1.auth import Auth
from disaggpair_operator.api.v1alpha1.bounds import RouterLimits, RouterTimeouts
from disaggpair_operator.api.v1alpha1.engine import Engine, Model, ModelCache
from disaggpair_operator.api.v1alpha1.fields import EnvVar, KeyRef, Resources, SecretRef
from disaggpair_operator.api.v1alpha1.observing import Guard, Tracing
from disaggpair_operator.api.v1alpha1.placement import Fabric, Placement, Toleration
from disaggpair_operator.api.v1alpha1.roles import Decode, Prefill, Role
from disaggpair_operator.api.v1alpha1.router import Router, Service
from disaggpair_operator.api.v1alpha1.spec import Rollout, Spec
from disaggpair_operator.api.v1alpha1.status import Condition, RolesStatus, RoleStatus, Status
from disaggpair_operator.api.v1alpha1.transfer import DirectTurns, KVTransfer

__all__ = [
    "Auth",
    "Condition",
    "Decode",
    "DirectTurns",
    "DisaggPair",
    "Engine",
    "EnvVar",
    "Fabric",
    "Guard",
    "KVTransfer",
    "KeyRef",
    "Model",
    "ModelCache",
    "Placement",
    "Prefill",
    "Resources",
    "Role",
    "RoleStatus",
    "RolesStatus",
    "Rollout",
    "Router",
    "RouterLimits",
    "RouterTimeouts",
    "SecretRef",
    "Service",
    "Spec",
    "Status",
    "Toleration",
    "Tracing",
]


class DisaggPair(Part):
    """A prefill and a decode role of vLLM with a multi-turn router in front of them.

    Both roles have one KV-transfer configuration; P reads the KV of earlier turns back from D.
    """

    spec: Spec
    """What the user wants."""
    status: Status = Status()
    """What the operator saw; written by the operator alone."""
