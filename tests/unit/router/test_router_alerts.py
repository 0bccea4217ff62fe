"""The expressions of docs/operations.md ask for series and labels that exist."""

import re
from pathlib import Path

import pytest

from disaggpair_router.metrics import Metrics, Series

DOCS = Path(__file__).parents[3] / "docs"
SERIES = {series.name: series for series in Metrics().series}
_NAMED = re.compile(r"disaggpair_router_\w+")
_SELECTED = re.compile(r"(disaggpair_router_\w+)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')
_BY = re.compile(r"by \(([^)]*)\)")


def expressions() -> list[str]:
    page = (DOCS / "operations.md").read_text()
    table = page.partition("## What to alert on")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ") and "`" in line]
    # A bar inside a cell is escaped.
    return [row.replace("\\|", "|").split("`")[1] for row in rows]


def series_of(name: str) -> Series | None:
    for ending in ("", "_bucket", "_sum", "_count"):
        found = SERIES.get(name.removesuffix(ending))
        if found is not None and (not ending or found.kind == "histogram"):
            return found
    return None


def test_there_is_a_table_of_alerts() -> None:
    assert len(expressions()) >= 10


@pytest.mark.parametrize("expression", expressions())
def test_an_alert_asks_for_what_exists(expression: str) -> None:
    asked = _SELECTED.findall(expression)
    assert asked
    for name, selector in asked:
        series = series_of(name)
        assert series is not None, name
        for label, _, value in _MATCHER.findall(selector):
            assert set(value.split("|")) <= set(series.labels[label]), (name, label)
        if series.kind == "counter":
            assert re.search(rf"(rate|increase)\({name}", expression), "a counter only grows"
        for labels in _BY.findall(expression):
            assert {one.strip() for one in labels.split(",")} <= {*series.labels, "le"}


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda path: path.name)
def test_every_series_that_a_page_names_exists(page: Path) -> None:
    for name in _NAMED.findall(page.read_text()):
        assert series_of(name) or name == "disaggpair_router_", name
