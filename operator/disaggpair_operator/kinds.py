"""The kinds of Kubernetes objects the operator reads or writes. Pure.

One table for the client's paths, the watches, the reads of observe and the chart's rights. A kind
that the plan starts to make belongs here first: observe would not see its objects otherwise.
"""

from dataclasses import dataclass
from typing import Final

from disaggpair_operator import names


@dataclass(frozen=True)
class Kind:
    """How a kind is called in objects and in paths."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def group(self) -> str:
        """API group; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        """Version inside the group."""
        return self.api_version.rpartition("/")[2]


PAIR: Final = Kind(names.API_VERSION, names.KIND, names.PLURAL)
POD: Final = Kind("v1", "Pod", "pods")
NODE: Final = Kind("v1", "Node", "nodes", namespaced=False)
SECRET: Final = Kind("v1", "Secret", "secrets")
"""Looked at one by one, by name, and in no other way: no right to list or watch can be bounded to
Secrets with a label, so it would be one on all of them."""

CHILDREN: Final = (
    Kind("v1", "ConfigMap", "configmaps"),
    Kind("v1", "Service", "services"),
    Kind("v1", "ServiceAccount", "serviceaccounts"),
    Kind("apps/v1", "Deployment", "deployments"),
    Kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies"),
    Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    Kind("rbac.authorization.k8s.io/v1", "Role", "roles"),
    Kind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings"),
)
"""Kinds of the objects a plan may hold."""

_BY_NAME: Final = {(k.api_version, k.kind): k for k in (PAIR, POD, NODE, *CHILDREN)}


def find_kind(api_version: str, kind: str) -> Kind | None:
    """The table's entry, or None for a kind that is not read and written as any other is."""
    return _BY_NAME.get((api_version, kind))
