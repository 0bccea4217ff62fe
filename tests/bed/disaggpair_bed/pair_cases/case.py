"""One case: what differs from an object that is accepted, and what is said about it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Case:
    """One object: what differs from the builder's spec, and what is said about it."""

    name: str
    """What the case is about; the id of its tests."""
    changes: Mapping[str, Any]
    """Laid over `builders.spec()`."""
    field: str = ""
    """Field that a refusal names; empty for an accepted object."""
    says: str = ""
    """Part of the sentence that the models and the API server both give."""


def below_spec(path: str, value: object) -> dict[str, Any]:
    """Changes that set the field at `path` below spec."""
    changes: Any = value
    for step in reversed(path.split(".")):
        changes = {step: changes}
    assert isinstance(changes, dict)
    return changes


def good(path: str, value: object, about: str = "") -> Case:
    """An accepted object with one field set."""
    return Case(about or f"{path}={short(value)}", below_spec(path, value))


def bad(path: str, value: object, about: str = "", *, field: str = "", says: str = "") -> Case:
    """A refused object with one field set; the refusal names that field or `field`."""
    case_name = about or f"{path}={short(value)}"
    return Case(case_name, below_spec(path, value), f"spec.{field or path}", says)


def short(value: object) -> str:
    """The value as part of a name."""
    text = str(value) or "empty"
    return text if len(text) <= 40 else f"{type(value).__name__}-of-{len(text)}"
