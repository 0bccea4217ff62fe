"""Metadata of the children: labels, selectors and the owner, each made in one function."""

from typing import Any

from disaggpair_operator import names
from disaggpair_operator.model import Owner


def selector(owner: Owner, part: str) -> dict[str, str]:
    """The labels that select the pods of one part; they never change after creation."""
    return {names.PAIR_LABEL: names.label_value(owner.name), names.ROLE_LABEL: part}


def labels(owner: Owner, part: str) -> dict[str, str]:
    """All labels of a child that belongs to `part`; a superset of its selector."""
    return {
        "app.kubernetes.io/name": "disaggpair",
        "app.kubernetes.io/instance": names.label_value(owner.name),
        "app.kubernetes.io/component": part,
        "app.kubernetes.io/managed-by": names.MANAGED_BY,
        **selector(owner, part),
    }


def child(owner: Owner, part: str, name: str = "") -> dict[str, Any]:
    """Metadata of one child. An owner without UID, as in a preview, leaves no reference."""
    metadata: dict[str, Any] = {
        "name": name or names.child_name(owner.name, part),
        "namespace": owner.namespace,
        "labels": labels(owner, part),
    }
    if owner.uid:
        metadata["ownerReferences"] = [
            {
                "apiVersion": names.API_VERSION,
                "kind": names.KIND,
                "name": owner.name,
                "uid": owner.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]
    return metadata
