"""Each keyword of pydantic's schema is rewritten or refused by name."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from disaggpair_operator.api.rules import Part, Rule, given
from disaggpair_operator.api.schema import NotStructural, structural


class Leaf(Part):
    """A leaf."""

    size: int = 3
    """Size of the leaf."""


class Tree(Part):
    """A tree
    of two lines."""

    leaf: Leaf = Leaf()
    """Its leaf."""
    more: Annotated[list[Leaf], Field(max_length=2)] = Field(default=[Leaf()])
    """More leaves."""
    kind: Literal["oak", "elm"] = "oak"
    """Kind of tree."""
    note: Annotated[str, Field(max_length=9)] = ""
    """A note."""
    fruit: Leaf | None = None
    """Its fruit."""

    rules = (
        Rule(
            cel="self.leaf.size > 0",
            message="leaf.size must be positive",
            check=lambda self: self.leaf.size > 0,
            field_path=".leaf.size",
        ),
    )


def rewrite(field: dict[str, Any], **schema: Any) -> dict[str, Any]:
    """The structural form of one field of an object."""
    whole = {"type": "object", "properties": {"field": field}, **schema}
    rewritten: dict[str, Any] = structural(whole, "spec", defaults=True)["properties"]["field"]
    return rewritten


@pytest.mark.parametrize(
    ("raw", "structural_form"),
    [
        ({"title": "Size", "type": "boolean"}, {"type": "boolean"}),
        ({"const": "a"}, {"type": "string", "enum": ["a"]}),
        ({"enum": [1, 2]}, {"type": "integer", "enum": [1, 2]}),
        (
            {"anyOf": [{"type": "boolean"}, {"type": "null"}], "default": None},
            {"type": "boolean"},
        ),
        ({"type": "integer"}, {"type": "integer", "format": "int64"}),
        (
            {"type": "integer", "minimum": 1, "maximum": 64},
            {"type": "integer", "format": "int32", "minimum": 1, "maximum": 64},
        ),
        (
            {"type": "integer", "minimum": 0, "maximum": 2**31},
            {"type": "integer", "format": "int64", "minimum": 0, "maximum": 2**31},
        ),
        (
            {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 5},
            {"type": "integer", "format": "int32", "minimum": 1, "maximum": 4},
        ),
        (
            {"type": "number", "exclusiveMinimum": 0},
            {"type": "number", "minimum": 0, "exclusiveMinimum": True},
        ),
        (
            {"type": "object", "additionalProperties": False, "properties": {}},
            {"type": "object", "properties": {}},
        ),
        (
            {
                "type": "object",
                "additionalProperties": {"type": "string", "maxLength": 3},
                "maxProperties": 2,
            },
            {
                "type": "object",
                "maxProperties": 2,
                "additionalProperties": {"type": "string", "maxLength": 3},
            },
        ),
        (
            {
                "type": "object",
                "additionalProperties": True,
                "x-kubernetes-preserve-unknown-fields": True,
            },
            {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        ),
        (
            {
                "type": "array",
                "maxItems": 4,
                "items": {"$ref": "#/$defs/Item"},
                "x-kubernetes-list-type": "set",
            },
            {
                "type": "array",
                "maxItems": 4,
                "items": {"type": "string", "maxLength": 5},
                "x-kubernetes-list-type": "set",
            },
        ),
        (
            {"description": "one\ntwo", "type": "boolean"},
            {"description": "one two", "type": "boolean"},
        ),
    ],
)
def test_a_keyword_is_rewritten(raw: dict[str, Any], structural_form: dict[str, Any]) -> None:
    definitions = {"Item": {"type": "string", "maxLength": 5, "title": "Item"}}
    assert rewrite(raw, **{"$defs": definitions}) == structural_form


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ({"type": "object", "patternProperties": {}, "properties": {}}, "patternProperties"),
        ({"type": "array", "maxItems": 1, "prefixItems": []}, "prefixItems"),
        ({"type": "object", "properties": {}, "propertyNames": {}}, "propertyNames"),
        ({"type": "boolean", "examples": [True]}, "examples"),
        ({"type": "boolean", "discriminator": {}}, "discriminator"),
        ({"type": "boolean", "oneOf": []}, "oneOf"),
        ({"type": "boolean", "not": {}}, "not"),
        ({"anyOf": [{"type": "boolean"}, {"type": "integer"}]}, "anyOf of several types"),
        ({"anyOf": [{"type": "boolean"}]}, "anyOf of several types"),
        ({"anyOf": [{"type": "null"}]}, "anyOf of several types"),
        ({"$ref": "#/$defs/Nowhere"}, "has no definition"),
        ({"$ref": "#/$defs/Loop"}, "Loop within Loop has no end"),
        ({"enum": ["a", 1]}, "enum of several types"),
        ({"enum": [None]}, "enum of several types"),
        ({"type": "object"}, "neither properties nor typed values"),
        ({"type": "object", "additionalProperties": True}, "neither properties nor typed values"),
        (
            {"type": "object", "properties": {}, "additionalProperties": {"type": "boolean"}},
            "additionalProperties beside properties",
        ),
        ({"type": "object", "additionalProperties": {"type": "boolean"}}, "without maxProperties"),
        ({"type": "string"}, "type string without maxLength"),
        ({"type": "array", "items": {"type": "boolean"}}, "type array without maxItems"),
        ({"description": "anything"}, "no type"),
    ],
)
def test_a_keyword_without_a_structural_form_is_refused(raw: dict[str, Any], reason: str) -> None:
    loop = {"type": "object", "properties": {"again": {"$ref": "#/$defs/Loop"}}}
    with pytest.raises(NotStructural, match=f"^spec.field.*{reason}"):
        rewrite(raw, **{"$defs": {"Loop": loop}})


def test_a_default_is_kept_outside_lists_and_its_parent_is_made_to_exist() -> None:
    tree = structural(Tree.model_json_schema(), "spec", defaults=True)["properties"]
    assert tree["leaf"]["default"] == {}
    assert tree["leaf"]["properties"]["size"]["default"] == 3
    assert tree["kind"]["default"] == "oak"
    assert tree["more"]["default"] == [{"size": 3}]
    assert "default" not in tree["more"]["items"]["properties"]["size"]


def test_an_empty_default_and_that_of_an_optional_part_are_left_out() -> None:
    tree = structural(Tree.model_json_schema(), "spec", defaults=True)["properties"]
    assert "default" not in tree["note"]
    assert "default" not in tree["fruit"]


def test_no_default_is_kept_where_none_is_wanted() -> None:
    assert "default" not in repr(structural(Tree.model_json_schema(), "status", defaults=False))


def test_a_part_whose_default_differs_from_its_fields_is_refused() -> None:
    class Odd(Part):
        """Odd."""

        leaf: Leaf = Leaf(size=5)
        """A leaf of another size."""

    with pytest.raises(NotStructural, match=r"^spec\.leaf: default of size differs"):
        structural(Odd.model_json_schema(), "spec", defaults=True)


def test_rules_are_written_beside_the_part() -> None:
    tree = structural(Tree.model_json_schema(), "spec", defaults=True)
    assert tree["x-kubernetes-validations"] == [
        {
            "rule": "self.leaf.size > 0",
            "message": "leaf.size must be positive",
            "fieldPath": ".leaf.size",
        }
    ]


def test_a_missing_field_counts_as_its_default_in_rules() -> None:
    assert given("self.a.b", "x") == '(has(self.a) && has(self.a.b) ? self.a.b : "x")'
    assert given("self.n", 3) == "(has(self.n) ? self.n : 3)"
