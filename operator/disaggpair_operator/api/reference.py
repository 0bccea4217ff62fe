"""The API reference page in Markdown, made from the same schema as the CRD. Pure."""

from collections.abc import Iterator
from typing import Any, Final

from disaggpair_operator import names
from disaggpair_operator.api.crd import object_schema
from disaggpair_operator.api.schema import Node

_INTRODUCTION: Final = f"""\
# API reference

Generated from operator/disaggpair_operator/api by `disaggpair crd --write`.

`{names.KIND}`, group `{names.GROUP}`, version `{names.VERSION}`. The API server fills in the
defaults shown as values and stores them with the object; where none is shown, a field left out is
the same as an empty or false one. The rules below a table hold across fields; the API server
refuses an object that breaks one.
"""

_PLACES: Final = {"object": "map", "array": "list"}


def reference() -> str:
    """Text of docs/api.md; the same for the same models."""
    shown: dict[str, str] = {}
    sections: list[str] = []
    for part in ("spec", "status"):
        sections += _sections(part, object_schema()["properties"][part], shown)
    return "\n".join([_INTRODUCTION, *sections])


def _sections(path: str, node: Node, shown: dict[str, str]) -> Iterator[str]:
    """The section of the object at `path` and those of the objects below it, each kind once."""
    shown[_kind(node)] = path
    nested = []
    rows = []
    for name, child in node["properties"].items():
        place = f"{path}.{name}"
        inner, inner_place = _inner(child, place)
        if "properties" in inner:
            first = shown.setdefault(_kind(inner), inner_place)
            if first == inner_place:
                nested.append((inner_place, inner))
            inner_place = first
        required = name in node.get("required", ())
        rows.append(_row(name, child, _type(child, inner_place), required=required))
    rules = [f"- {rule['message']}" for rule in node.get("x-kubernetes-validations", ())]
    yield "\n".join(
        [
            f"## {path}",
            "",
            node["description"],
            "",
            "| Field | Type | Default | Meaning |",
            "| --- | --- | --- | --- |",
            *rows,
            *(["", "Rules:", "", *rules] if rules else []),
            "",
        ]
    )
    for inner_place, inner in nested:
        yield from _sections(inner_place, inner, shown)


def _inner(node: Node, place: str) -> tuple[Node, str]:
    """The object that a field holds, itself or as items or values, and its place."""
    if node["type"] == "array":
        return node["items"], f"{place}[]"
    if "additionalProperties" in node:
        return node["additionalProperties"], f"{place}[]"
    return node, place


def _kind(node: Node) -> str:
    """What makes two objects one section: their fields."""
    return repr(node["properties"])


def _row(name: str, node: Node, kind: str, *, required: bool) -> str:
    default = "required" if required else _default(node.get("default"))
    return f"| `{name}` | {kind} | {default} | {_cell(node.get('description', ''))} |"


def _default(value: Any) -> str:
    if value is None or value == {}:
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, list):
        return ", ".join(map(_default, value))
    if isinstance(value, dict):
        return "`" + ", ".join(f"{key}: {item}" for key, item in value.items()) + "`"
    return f"`{value}`"


def _type(node: Node, inner_place: str) -> str:
    """Type and bounds of a field in words; an object's type is a link to its section."""
    inner, _ = _inner(node, "")
    if "enum" in inner:
        own = "one of " + ", ".join(
            f"`{value}`" if value != "" else '`""`' for value in inner["enum"]
        )
    elif "properties" in inner:
        anchor = "".join(letter for letter in inner_place.lower() if letter.isalnum())
        own = f"[{inner_place.removesuffix('[]')}](#{anchor})"
    else:
        own = f"{inner['type']}{_bounds(inner)}"
    if inner is node:
        return own
    most = node.get("maxItems", node.get("maxProperties"))
    return f"{_PLACES[node['type']]} of up to {most}: {own}"


def _bounds(node: Node) -> str:
    text = ""
    if "minimum" in node and "maximum" in node:
        text = f", {node['minimum']} to {node['maximum']}"
    elif "minimum" in node:
        text = f", at least {node['minimum']}"
    if "maxLength" in node:
        text = f", up to {node['maxLength']} characters"
    if "pattern" in node:
        text += f", `{_cell(node['pattern'])}`"
    return text


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
