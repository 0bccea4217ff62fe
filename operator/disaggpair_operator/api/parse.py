"""A raw object as a DisaggPair, or the faults that keep it from being one. Pure.

The API server refuses the same objects with the CRD's schema and rules. This is for objects that
got past it (stored under an older CRD) and for previews without a cluster.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from pydantic import ValidationError

from disaggpair_operator import names
from disaggpair_operator.api.crd import spec_schema
from disaggpair_operator.api.faults import Fault, faults_of
from disaggpair_operator.api.schema import Node
from disaggpair_operator.api.text import shown
from disaggpair_operator.api.v1alpha1 import DisaggPair, Status
from disaggpair_operator.api.v1alpha1.fields import SUBDOMAIN

__all__ = ["MAX_NAME", "Fault", "parse"]

MAX_NAME: Final = 253
_NAMESPACE: Final = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"


def parse(raw: Mapping[str, Any]) -> DisaggPair | list[Fault]:
    """Parse a whole object as read from the API server or from a file.

    A status that this version cannot read counts as none: the operator writes a new one, and an
    old one must not keep a pair from being served. Unknown fields of a status are left out.
    """
    faults = _head_faults(raw)
    if not isinstance(raw.get("spec"), Mapping):
        return [*faults, Fault("spec", "spec is required and must be a mapping")]
    spec = _as_stored(raw["spec"], _spec_schema())
    try:
        pair = DisaggPair.model_validate({"spec": spec, "status": _status(raw.get("status"))})
    except ValidationError as error:
        return faults + faults_of(error, {"spec": _spec_schema()})
    return faults or pair


@cache
def _spec_schema() -> Node:
    return spec_schema()


def _status(raw: object) -> Status:
    try:
        return Status.model_validate(raw or {}, extra="ignore")
    except ValidationError:
        return Status()


def _head_faults(raw: Mapping[str, Any]) -> list[Fault]:
    """Faults of what every object has."""
    faults = [
        Fault(field, f"{field} {_is(raw.get(field))}, but must be {wanted}")
        for field, wanted in (("apiVersion", names.API_VERSION), ("kind", names.KIND))
        if raw.get(field) != wanted
    ]
    metadata = {} if raw.get("metadata") is None else raw["metadata"]
    if not isinstance(metadata, Mapping):
        return [*faults, Fault("metadata", f"metadata {_is(metadata)}, but must be a mapping")]
    name = metadata.get("name")
    if not isinstance(name, str) or not re.fullmatch(SUBDOMAIN, name) or len(name) > MAX_NAME:
        faults.append(
            Fault(
                "metadata.name",
                f"metadata.name {_is(name)}, but must be up to {MAX_NAME} lower-case "
                "letters, digits, dashes and dots, with a letter or digit at both ends of each "
                "part",
            )
        )
    namespace = metadata.get("namespace") or None
    if namespace is not None and not (
        isinstance(namespace, str) and re.fullmatch(_NAMESPACE, namespace)
    ):
        faults.append(
            Fault(
                "metadata.namespace",
                f"metadata.namespace {_is(namespace)}, but must be up to 63 lower-case letters, "
                "digits and dashes, with a letter or digit at both ends",
            )
        )
    return faults


def _is(value: object) -> str:
    return "is missing" if value is None else f"is {shown(value)}"


def _as_stored(raw: object, node: Node) -> object:
    """A raw value as the API server stores it when it is created.

    A null counts as left out, and 2.0 as 2 where a whole number belongs.
    """
    if isinstance(raw, Mapping):
        fields = node.get("properties", {})
        others = node.get("additionalProperties")
        return {
            name: _as_stored(value, fields.get(name, others or {}))
            for name, value in raw.items()
            if value is not None or (name not in fields and others is None)
        }
    if isinstance(raw, list):
        return [_as_stored(item, node.get("items", {})) for item in raw]
    if isinstance(raw, float) and raw.is_integer() and node.get("type") == "integer":
        return int(raw)
    return raw
