"""The reference page of the router's file in Markdown, made from the configuration model.

`python -m disaggpair_router.configpage --write` writes it, `--check` compares it.
"""

import inspect
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from disaggpair_router.config import RouterConfig

PAGE: Final = Path("docs/router-config.md")

_INTRODUCTION: Final = """\
# The router's file

Generated from operator/disaggpair_router/config.py by `make router-config`.

`disaggpair router --config FILE` reads a JSON object with these fields. One that is left out has
its default, and one that is not listed is refused. With `--print-config` the command shows what a
router would be told, defaults included. What fields are for is in [the router](router.md).
"""
_UNITS: Final = (
    ("_per_s", "per second"),
    ("_s", "seconds"),
    ("_bytes", "bytes"),
    ("_tokens", "tokens"),
)
_TYPES: Final = {"integer": "integer", "number": "number", "string": "text", "boolean": "boolean"}
Node = dict[str, Any]


def page() -> str:
    """The page's text; the same for the same model."""
    schema = RouterConfig.model_json_schema()
    parts: Node = schema.pop("$defs")
    sections = [_section("The file", RouterConfig, schema)]
    for name, path, model in _places(RouterConfig):
        sections.append(_section(path, model, parts[name]))
    return "\n".join([_INTRODUCTION, *sections])


def _places(model: type[BaseModel], path: str = "") -> Iterator[tuple[str, str, type[BaseModel]]]:
    """Name, place and model of each part below a model, in the fields' order."""
    for field, info in model.model_fields.items():
        for part in _models(info.annotation):
            place = f"{path}{field}"
            kind = part.model_fields.get("kind")
            shown = f"{place} of kind {kind.default}" if kind else place
            yield part.__name__, shown, part
            yield from _places(part, f"{place}.")


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in getattr(annotation, "__args__", ()):
        yield from _models(inner)


def _section(path: str, model: type[BaseModel], node: Node) -> str:
    required = node.get("required", ())
    rows = [
        _row(
            name,
            child,
            "required" if name in required else _default(model, name),
            _text(model, name),
        )
        for name, child in node["properties"].items()
    ]
    head = path if path == "The file" else f"`{path}`"
    return "\n".join(
        [
            f"## {head}",
            "",
            inspect.cleandoc(model.__doc__ or ""),
            "",
            "| field | type | unit | default | meaning |",
            "|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _row(name: str, node: Node, default: str, text: str) -> str:
    unit = next((word for ending, word in _UNITS if name.endswith(ending)), "")
    return f"| {' | '.join((f'`{name}`', _type(node), unit, default, text))} |"


def _text(model: type[BaseModel], name: str) -> str:
    # The schema leaves out what the part of a field says of itself in the same words.
    return " ".join((model.model_fields[name].description or "").split()).replace("|", "\\|")


def _default(model: type[BaseModel], name: str) -> str:
    value: object = model.model_fields[name].get_default()
    if value is None:
        return "none"
    if isinstance(value, BaseModel):
        return "its defaults"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return ", ".join(f"`{one}`" for one in value) or "empty"
    if isinstance(value, float):
        return f"`{value:g}`"
    return f"`{value}`" if value != "" else "empty"


def _type(node: Node) -> str:
    """Type and bounds in words."""
    choices: list[Node] = node.get("anyOf") or node.get("oneOf") or []
    if choices:
        kinds = dict.fromkeys(_type(one) for one in choices if one.get("type") != "null")
        return " or ".join(kinds)
    if "$ref" in node:
        return "object"
    if "const" in node:
        return f"`{node['const']}`"
    if "enum" in node:
        return " or ".join(f"`{one}`" for one in node["enum"])
    if node["type"] == "array":
        return f"list of {_type(node['items'])}{', at least 1' * ('minItems' in node)}"
    return f"{_TYPES[node['type']]}{_bounds(node)}"


def _bounds(node: Node) -> str:
    words = {
        "minimum": "at least",
        "exclusiveMinimum": "above",
        "maximum": "at most",
        "exclusiveMaximum": "below",
    }
    said = "".join(f", {word} {node[key]:,}" for key, word in words.items() if key in node)
    return said + (f", at most {node['maxLength']} characters" if "maxLength" in node else "")


def main(arguments: Sequence[str]) -> int:
    """Write or check the page of this folder's repository; 1 when it differs."""
    if list(arguments) == ["--write"]:
        PAGE.write_text(page())
        return 0
    if PAGE.is_file() and PAGE.read_text() == page():
        return 0
    sys.stderr.write(f"{PAGE} differs from the model: run make router-config\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
