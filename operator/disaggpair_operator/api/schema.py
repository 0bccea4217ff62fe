"""pydantic's JSON schema as a structural schema of Kubernetes. Pure.

Every keyword is kept, rewritten or refused by name; nothing passes because nobody thought of it.
Rewritten: `$ref` (inlined), `anyOf` with null (an optional field), `const` (enum), numeric
exclusive bounds, `additionalProperties: false` beside properties (left out, because the API server
drops unknown fields and reports them to strict clients). Refused: everything else that is not on
the list below, and every text, list or map without a bound, because the API server estimates the
cost of rules from those bounds.
"""

from collections.abc import Mapping
from typing import Any, Final

Node = dict[str, Any]

_KEPT: Final = (
    "description",
    "type",
    "format",
    "enum",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "exclusiveMinimum",
    "maximum",
    "exclusiveMaximum",
    "multipleOf",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "default",
    "required",
    "properties",
    "additionalProperties",
    "items",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
)
"""Keywords of a node in the order in which they are written."""

_JSON_TYPES: Final = {str: "string", bool: "boolean", int: "integer", float: "number"}
_BOUND_OF: Final = {"string": "maxLength", "array": "maxItems"}
_INT32: Final = 2**31
_EMPTY: Final[tuple[object, ...]] = (None, False, "", [], {})


class NotStructural(ValueError):
    """A part of the model has no form in a structural schema."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")


def structural(schema: Mapping[str, Any], path: str, *, defaults: bool) -> Node:
    """Rewrite the JSON schema of the field at `path`.

    With `defaults`, the non-empty defaults are kept for the API server to fill in, outside lists
    and maps: a default inside a list item makes the stored list differ from the applied one, which
    GitOps tools report as drift.

    Raises:
        NotStructural: a keyword or a missing bound, with the path of the field.
    """
    return _Rewrite(schema.get("$defs", {})).node(
        {key: value for key, value in schema.items() if key != "$defs"}, path, defaults=defaults
    )


class _Rewrite:
    """One walk over a schema with its definitions."""

    def __init__(self, definitions: Mapping[str, Node]) -> None:
        self._definitions = definitions
        self._open: tuple[str, ...] = ()

    def node(self, raw: Mapping[str, Any], path: str, *, defaults: bool) -> Node:
        node = _without_null(dict(raw), path)
        reference = node.pop("$ref", None)
        if reference is not None:
            return self._inlined(reference, node, path, defaults=defaults)
        node.pop("title", None)
        if "description" in node:
            node["description"] = " ".join(node["description"].split())
        _rewrite_values(node, path)
        if node.get("type") == "object":
            self._rewrite_object(node, path, defaults=defaults)
        elif node.get("type") == "array" and "items" in node:
            node["items"] = self.node(node["items"], f"{path}[]", defaults=False)
        if not defaults or ("properties" not in node and node.get("default") in _EMPTY):
            node.pop("default", None)
        elif "default" in node:
            node["default"] = _trimmed(node["default"])
        _refuse_the_rest(node, path)
        return {key: node[key] for key in _KEPT if key in node}

    def _inlined(self, reference: str, beside: Node, path: str, *, defaults: bool) -> Node:
        name = reference.removeprefix("#/$defs/")
        if name not in self._definitions:
            raise NotStructural(path, f"$ref {reference!r} has no definition")
        if name in self._open:
            raise NotStructural(path, f"$ref to {name} within {name} has no end")
        outer, self._open = self._open, (*self._open, name)
        node = self.node({**self._definitions[name], **beside}, path, defaults=defaults)
        self._open = outer
        return node

    def _rewrite_object(self, node: Node, path: str, *, defaults: bool) -> None:
        properties = node.get("properties")
        values = node.pop("additionalProperties", None)
        if properties is not None:
            if values not in (None, False):
                raise NotStructural(path, "additionalProperties beside properties")
            self._rewrite_properties(node, path, defaults=defaults)
        elif isinstance(values, Mapping):
            node["additionalProperties"] = self.node(values, f"{path}[]", defaults=False)
            _require_bound(node, "maxProperties", path)
        elif not node.get("x-kubernetes-preserve-unknown-fields"):
            raise NotStructural(path, "an object with neither properties nor typed values")

    def _rewrite_properties(self, node: Node, path: str, *, defaults: bool) -> None:
        whole = node.pop("default", None)
        raw = node["properties"]
        node["properties"] = {
            name: self.node(child, f"{path}.{name}" if path else name, defaults=defaults)
            for name, child in raw.items()
        }
        if whole is None or not defaults:
            return
        for name, value in whole.items():
            if value != raw.get(name, {}).get("default"):
                raise NotStructural(path, f"default of {name} differs from the field's own")
        # The API server fills in the rest only below an object that is there.
        if any("default" in child for child in node["properties"].values()):
            node["default"] = {}


def _without_null(node: Node, path: str) -> Node:
    """`node` with an `anyOf` of one schema and null replaced by that schema."""
    branches = node.pop("anyOf", None)
    if branches is None:
        return node
    rest = [branch for branch in branches if branch != {"type": "null"}]
    if len(rest) != 1 or len(rest) == len(branches):
        raise NotStructural(path, "anyOf of several types")
    return {**rest[0], **node}


def _rewrite_values(node: Node, path: str) -> None:
    """Rewrite what says which values a single node may have."""
    if "const" in node:
        node["enum"] = [node.pop("const")]
    if "enum" in node:
        types = {_JSON_TYPES.get(type(value)) for value in node["enum"]}
        if len(types) != 1 or None in types:
            raise NotStructural(path, "enum of several types")
        node.setdefault("type", types.pop())
    for bound, limit, step in (
        ("minimum", "exclusiveMinimum", 1),
        ("maximum", "exclusiveMaximum", -1),
    ):
        if limit in node:
            _make_inclusive(node, bound, limit, step)
    if node.get("type") == "integer" and "enum" not in node:
        narrow = (
            node.get("minimum", -_INT32 - 1) >= -_INT32 and node.get("maximum", _INT32) < _INT32
        )
        node["format"] = "int32" if narrow else "int64"
    bound_name = _BOUND_OF.get(node.get("type", ""))
    if bound_name and "enum" not in node:
        _require_bound(node, bound_name, path)


def _trimmed(default: object) -> object:
    """A default without the fields of list items that are empty anyway."""
    if isinstance(default, list):
        return [_trimmed(item) for item in default]
    if isinstance(default, dict):
        return {key: value for key, value in default.items() if value not in _EMPTY}
    return default


def _make_inclusive(node: Node, bound: str, limit: str, step: int) -> None:
    """Replace a numeric exclusive bound: Kubernetes has a flag beside the bound instead."""
    value = node.pop(limit)
    if node.get("type") == "integer":
        node[bound] = value + step
    else:
        node[bound] = value
        node[limit] = True


def _require_bound(node: Node, keyword: str, path: str) -> None:
    if keyword not in node:
        raise NotStructural(path, f"type {node['type']} without {keyword}")


def _refuse_the_rest(node: Node, path: str) -> None:
    unknown = sorted(set(node) - set(_KEPT))
    if unknown:
        raise NotStructural(path, f"keyword {unknown[0]} has no structural form")
    if "type" not in node:
        raise NotStructural(path, "no type")
