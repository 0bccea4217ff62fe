"""pydantic's errors as sentences about the fields of an object. Pure.

A sentence names the field, its value and what is allowed, in the words of the API and without
pydantic's.
"""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from disaggpair_operator.api.rules import BROKEN_RULES
from disaggpair_operator.api.schema import Node
from disaggpair_operator.api.text import printable, shown

_MOST_FAULTS: Final = 100
"""Faults that pydantic's errors become; nobody reads more."""


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with an object."""

    path: str
    """Field, such as spec.kvTransfer.decodeTTLSeconds."""
    message: str
    """Sentence for the user: names the field, the value and what is allowed."""

    def __str__(self) -> str:
        return self.message


def faults_of(error: ValidationError, schemas: Mapping[str, Node]) -> list[Fault]:
    """The faults that pydantic found in an object whose fields have `schemas`."""
    whole: Node = {"type": "object", "properties": dict(schemas)}
    found: list[Fault] = []
    for details in error.errors(include_url=False)[:_MOST_FAULTS]:
        if details["type"] == BROKEN_RULES:
            found += _broken_rules(details)
        else:
            found.append(_fault(details, whole))
    return found


def _path(location: tuple[str | int, ...]) -> str:
    path = ""
    # pydantic ends with "[key]" where a key of a map is wrong and not its value.
    for step in location[:-1] if location[-1:] == ("[key]",) else location:
        path = _below(path, step)
    return path


def _below(path: str, step: str | int) -> str:
    """The path of the field `step` below `path`; indices and odd keys stand in brackets."""
    if isinstance(step, int) or not step.isidentifier():
        return f"{path}[{printable(str(step))}]"
    return f"{path}.{step}" if path else step


def _broken_rules(details: ErrorDetails) -> list[Fault]:
    part = _path(details["loc"])
    return [
        Fault(part + below, printable(_whole(part, sentence)))
        for below, sentence in details["ctx"]["broken"]
    ]


def _whole(part: str, sentence: str) -> str:
    """A rule's sentence, with the part it is about where it does not say that itself."""
    return sentence if sentence.startswith("spec.") else f"{part}: {sentence}"


def _fault(details: ErrorDetails, whole: Node) -> Fault:
    path = _path(details["loc"])
    word = _WORDS.get(details["type"])
    if word is None:
        return Fault(path, f"{path}: {details['msg']}")
    return Fault(path, f"{path} {word(details, _node_at(details['loc'], whole))}")


def _node_at(location: tuple[str | int, ...], whole: Node) -> Node:
    """Schema of the last field of `location` that has one: of the part, for an unknown field."""
    node = whole
    for step in location:
        if isinstance(step, int):
            below = node.get("items")
        else:
            below = node.get("properties", {}).get(step) or node.get("additionalProperties")
        if below is None:
            break
        node = below
    return node


def _unknown(details: ErrorDetails, part: Node) -> str:
    fields = list(part.get("properties", ()))
    name = str(details["loc"][-1])
    near = difflib.get_close_matches(name, fields, n=1)
    if near:
        return f"is not a field; did you mean {near[0]}?"
    return f"is not a field; allowed here: {', '.join(fields)}"


def _not_among(details: ErrorDetails, node: Node) -> str:
    allowed = ", ".join(shown(value) for value in node.get("enum", ()))
    return f"is {shown(details['input'])}, but must be one of {allowed}"


def _out_of_range(details: ErrorDetails, node: Node) -> str:
    return (
        f"is {shown(details['input'])}, but must be from {node.get('minimum')} "
        f"to {node.get('maximum')}"
    )


def _wrong_length(details: ErrorDetails, node: Node) -> str:
    """For text, lists and maps."""
    value = details["input"]
    unit = "characters" if isinstance(value, str) else "entries"
    least = node.get("minLength", node.get("minItems", 0))
    most = node.get("maxLength", node.get("maxItems", node.get("maxProperties")))
    size = f"has {len(value)} {unit}" if value else "is empty"
    return f"{size}, but must have from {least} to {most} {unit}"


def _mismatch(details: ErrorDetails, node: Node) -> str:
    return f"is {shown(details['input'])}, but must match {node.get('pattern')}"


def _must_be(what: str) -> Callable[[ErrorDetails, Node], str]:
    return lambda details, _: f"is {shown(details['input'])}, but must be {what}"


_WORDS: Final[Mapping[str, Callable[[ErrorDetails, Node], str]]] = {
    "missing": lambda _, node: "is required",
    "extra_forbidden": _unknown,
    "literal_error": _not_among,
    "greater_than_equal": _out_of_range,
    "less_than_equal": _out_of_range,
    "string_too_short": _wrong_length,
    "string_too_long": _wrong_length,
    "too_short": _wrong_length,
    "too_long": _wrong_length,
    "string_pattern_mismatch": _mismatch,
    "invalid_key": _unknown,
    "int_type": _must_be("a whole number"),
    "bool_type": _must_be("true or false"),
    "string_type": _must_be("text, in quotes if it looks like a number"),
    "string_unicode": _must_be("text without half of a surrogate pair"),
    "list_type": _must_be("a list"),
    "dict_type": _must_be("a mapping"),
    "model_type": _must_be("a mapping"),
    "value_error": lambda details, _: str(details["ctx"]["error"]),
}
