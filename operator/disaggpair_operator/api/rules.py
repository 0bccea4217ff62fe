"""Rules across fields, written once for both places that enforce them.

A rule has the CEL text that the API server runs and the check that the model runs; the contract
tests feed the same objects to both. Pure.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.alias_generators import to_camel


@dataclass(frozen=True)
class Rule:
    """One rule on one part of the object."""

    cel: str
    """Expression over `self`, true when the part is acceptable."""
    message: str
    """Sentence for the user: names the field and what is allowed."""
    check: Callable[[Any], bool]
    """The same question asked of the parsed part."""
    field_path: str = ""
    """Path below the part to which the API server attaches the message, such as `.zone`."""


class Part(BaseModel):
    """Base of every part of the API: camelCase outside, frozen, unknown fields refused."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        use_attribute_docstrings=True,
    )
    rules: ClassVar[tuple[Rule, ...]] = ()

    @model_validator(mode="after")
    def _hold_rules(self) -> Self:
        broken = [rule.message for rule in type(self).rules if not rule.check(self)]
        if broken:
            raise ValueError("; ".join(broken))
        return self
