"""Conditions in the shape of metav1.Condition, and when their time changes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

State = Literal["True", "False", "Unknown"]


@dataclass(frozen=True)
class Condition:
    """One aspect of the pair and why it is so."""

    type: str
    status: State
    reason: str
    """One CamelCase word for programs."""
    message: str = ""
    """A sentence a person can act on."""


def holds(type_: str, reason: str, message: str = "") -> Condition:
    """The aspect is true."""
    return Condition(type_, "True", reason, message)


def fails(type_: str, reason: str, message: str) -> Condition:
    """The aspect is false."""
    return Condition(type_, "False", reason, message)


def unknown(type_: str, reason: str, message: str = "") -> Condition:
    """Nothing can be said of the aspect yet."""
    return Condition(type_, "Unknown", reason, message)


def stamped(
    conditions: Iterable[Condition],
    previous: Iterable[Mapping[str, Any]],
    generation: int,
    now: str,
) -> list[dict[str, Any]]:
    """The conditions with generation and time; the time is kept while `status` stays the same."""
    before = {entry["type"]: entry for entry in previous}
    result = []
    for condition in conditions:
        old = before.get(condition.type, {})
        same = old.get("status") == condition.status
        result.append(
            {
                "type": condition.type,
                "status": condition.status,
                "reason": condition.reason,
                "message": condition.message,
                "lastTransitionTime": old["lastTransitionTime"] if same else now,
                "observedGeneration": generation,
            }
        )
    return result
