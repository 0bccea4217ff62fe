"""Rules across fields, written once for both places that enforce them.

A rule has the CEL text that the API server runs and the check that the model runs; the contract
tests feed the same objects to both. Pure.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, model_validator
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

BROKEN_RULES = "broken_rules"
"""Type of the pydantic error that a part with broken rules raises; its context has `broken`."""


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
    message_cel: str = ""
    """Expression for a sentence with the object's values, used instead of `message`.

    The API server takes it only if it can bound its cost: `format` alone for numbers, no `filter`.
    """
    explain: Callable[[Any], str] | None = None
    """A sentence with the object's values, made from the parsed part."""

    def validation(self) -> dict[str, str]:
        """The rule as an entry of x-kubernetes-validations."""
        entry = {
            "rule": self.cel,
            "message": self.message,
            "messageExpression": self.message_cel,
            "fieldPath": self.field_path,
        }
        return {key: value for key, value in entry.items() if value}

    def sentence(self, part: object) -> str:
        """What to tell the user about a part that breaks the rule."""
        return self.explain(part) if self.explain else self.message


def given(path: str, default: str | int | bool) -> str:
    """CEL for the field at `path` such as `self.fabric.type`, or `default` where it is left out.

    The API server fills defaults in before it runs rules; objects stored before a default existed
    still lack them.
    """
    steps = path.split(".")
    present = " && ".join(f"has({'.'.join(steps[:end])})" for end in range(2, len(steps) + 1))
    return f"({present} ? {path} : {json.dumps(default)})"


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
        broken = [
            (rule.field_path, rule.sentence(self))
            for rule in type(self).rules
            if not rule.check(self)
        ]
        if broken:
            raise PydanticCustomError(
                BROKEN_RULES,
                "{sentences}",
                {"sentences": "; ".join(sentence for _, sentence in broken), "broken": broken},
            )
        return self

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Add the rules to the part's schema, where the CRD keeps them."""
        schema = handler.resolve_ref_schema(handler(core_schema))
        if cls.rules:
            schema["x-kubernetes-validations"] = [rule.validation() for rule in cls.rules]
        return schema
