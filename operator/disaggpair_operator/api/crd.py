"""The CustomResourceDefinition, made from the models. Pure."""

from typing import Any, Final

import yaml

from disaggpair_operator import names
from disaggpair_operator.api.schema import Node, structural
from disaggpair_operator.api.v1alpha1 import DisaggPair, Spec, Status

CRD_NAME: Final = f"{names.PLURAL}.{names.GROUP}"
SHORT_NAME: Final = "dpair"

_HEADER: Final = "# Generated from operator/disaggpair_operator/api by `disaggpair crd --write`.\n"
_WIDE: Final = 1
"""Priority of columns that only `kubectl get -o wide` shows."""


def crd() -> dict[str, Any]:
    """The CustomResourceDefinition of DisaggPair."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": CRD_NAME},
        "spec": {
            "group": names.GROUP,
            "names": {
                "kind": names.KIND,
                "listKind": f"{names.KIND}List",
                "plural": names.PLURAL,
                "singular": names.KIND.lower(),
                "shortNames": [SHORT_NAME],
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": names.VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": _columns(),
                    "schema": {"openAPIV3Schema": object_schema()},
                }
            ],
        },
    }


def crd_yaml() -> str:
    """Text of the generated file; the same for the same models."""
    return _HEADER + yaml.dump(crd(), Dumper=_Plain, sort_keys=False, width=100)


def spec_schema() -> Node:
    """Structural schema of `spec`, with the defaults that the API server fills in."""
    return structural(Spec.model_json_schema(), "spec", defaults=True)


def object_schema() -> Node:
    """Structural schema of the whole object."""
    return {
        "description": " ".join((DisaggPair.__doc__ or "").split()),
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"description": "Group and version of the object.", "type": "string"},
            "kind": {"description": "Kind of the object.", "type": "string"},
            "metadata": {"type": "object"},
            "spec": spec_schema(),
            "status": structural(Status.model_json_schema(), "status", defaults=False),
        },
    }


def _columns() -> list[dict[str, Any]]:
    ready = '.status.conditions[?(@.type=="Ready")]'
    return [
        _column("Ready", f"{ready}.status", "The current spec is in force and answers."),
        _column(
            "Serving",
            '.status.conditions[?(@.type=="Serving")].status',
            "The pair answers requests, also while a change is under way.",
        ),
        _column("Zone", ".spec.placement.zone", "Availability zone of both roles."),
        _column(
            "Prefill",
            ".status.roles.prefill.summary",
            "Prefill engines that answer, of those wanted.",
        ),
        _column(
            "Decode", ".status.roles.decode.summary", "Decode engines that answer, of those wanted."
        ),
        _column("Router", ".status.roles.router.summary", "Routers that answer, of those wanted."),
        _column("Reason", f"{ready}.reason", "Why the pair is ready or not.", priority=_WIDE),
        _column("Message", f"{ready}.message", "The same in a sentence.", priority=_WIDE),
        _column("Revision", ".status.revision", "Revision both roles share.", priority=_WIDE),
        _column("Endpoint", ".status.endpoint", "Base URL in the cluster.", priority=_WIDE),
        _column("Age", ".metadata.creationTimestamp", "Time since creation.", kind="date"),
    ]


def _column(
    name: str, path: str, description: str, *, kind: str = "string", priority: int = 0
) -> dict[str, Any]:
    column = {"name": name, "type": kind, "description": description, "jsonPath": path}
    return {**column, "priority": priority} if priority else column


class _Plain(yaml.SafeDumper):
    """Writes every value where it stands, without anchors for repeated ones."""

    def ignore_aliases(self, data: object) -> bool:
        return True
