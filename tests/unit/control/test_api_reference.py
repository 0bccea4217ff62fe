"""The API page shows every field, once, and its links lead somewhere."""

import re
from collections.abc import Iterator
from typing import Any

from disaggpair_operator.api.crd import object_schema
from disaggpair_operator.api.reference import reference

PAGE = reference()


def test_every_field_is_in_the_page() -> None:
    missing = [
        name
        for name in _names(object_schema()["properties"]["spec"])
        if f"| `{name}` |" not in PAGE
    ]
    assert missing == []


def test_every_link_leads_to_a_heading() -> None:
    headings = re.findall(r"^## (.+)$", PAGE, flags=re.MULTILINE)
    anchors = {"".join(letter for letter in text.lower() if letter.isalnum()) for text in headings}
    assert len(anchors) == len(headings)
    assert set(re.findall(r"\]\(#([^)]+)\)", PAGE)) <= anchors


def test_every_row_has_four_cells() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    assert {len(re.split(r"(?<!\\)\|", row)) for row in rows} == {6}


def test_bounds_defaults_and_rules_are_shown() -> None:
    assert "| `replicas` | integer, 1 to 64 | `1` | Engine pods of this role. |" in PAGE
    assert "| `bidirectional` | boolean | `true` |" in PAGE
    assert "- spec.router.replicas must be 1 with" in PAGE
    assert "`key: nvidia.com/gpu, operator: Exists, effect: NoSchedule`" in PAGE


def _names(node: dict[str, Any]) -> Iterator[str]:
    for name, child in node.get("properties", {}).items():
        yield name
        yield from _names(child)
        yield from _names(child.get("items", {}))
