"""The alerts of docs/operations.md ask for series and labels that exist, for each pair apart."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from disaggpair_bed import promql
from disaggpair_router.metrics import Metrics, Series

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
RULES = ROOT / "examples" / "monitoring" / "alerts.yaml"
SERIES = {series.name: series for series in Metrics().series}
OF_THE_SCRAPE = {"namespace", "disaggpair"}
"""Labels that the relabelling of examples/monitoring adds."""
_NAMED = re.compile(r"disaggpair_router_\w+")


def table() -> list[tuple[str, str, str]]:
    """Name, expression and duration of each alert."""
    page = (DOCS / "operations.md").read_text()
    part = page.partition("## What to alert on")[2].partition("\n## ")[0]
    # A bar inside a cell is escaped.
    rows = re.findall(r"^\| ([^|`]+) \| `(.+?)` \| (\d+[mh]) \|", part, flags=re.MULTILINE)
    return [(name, expression.replace("\\|", "|"), wait) for name, expression, wait in rows]


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["spec"]["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def labels_of(expression: str) -> frozenset[str] | None:
    return promql.labels_of(promql.parse(expression))


def series_of(name: str) -> Series | None:
    for ending in ("", "_bucket", "_sum", "_count"):
        found = SERIES.get(name.removesuffix(ending))
        if found is not None and (not ending or found.kind == "histogram"):
            return found
    return None


def test_there_is_a_table_of_alerts() -> None:
    assert len(table()) >= 10


@pytest.mark.parametrize("expression", [row[1] for row in table()])
def test_an_alert_asks_for_what_exists(expression: str) -> None:
    asked = list(promql.selectors(promql.parse(expression)))
    assert asked
    for selector, function in asked:
        series = series_of(selector.name)
        assert series is not None, selector.name
        for label, _, value in selector.matchers:
            assert set(value.split("|")) <= set(series.labels[label]), (selector.name, label)
        if series.kind == "counter":
            assert function in promql.OVER_TIME, "a counter only grows"
        grouped = re.findall(r"by \(([^)]*)\)", expression)
        for labels in grouped:
            named = {one.strip() for one in labels.split(",")}
            assert named <= {*series.labels, "le", *OF_THE_SCRAPE}


@pytest.mark.parametrize("expression", [row[1] for row in table()])
def test_an_alert_is_one_for_each_pair(expression: str) -> None:
    labels = labels_of(expression)
    assert labels is not None
    assert labels >= OF_THE_SCRAPE


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("sum(rate(a[5m])) > 0", "one number"),
        ("sum by (disaggpair) (rate(a[5m])) / sum(rate(b[5m]))", "one number"),
        ("sum by (a) (rate(a[5m])) / sum by (b) (rate(b[5m]))", "sides"),
        ("rate(a[5m]) > 0", "not aggregated"),
        ("sum by (a) (rate(b)) > 0", "no range"),
        ("histogram_quantile(0.9, sum by (a) (rate(b[5m])))", "no le"),
        ("sum by (a (b)", "is missing"),
        ("max by (a) (b) c", "is left"),
        ("max by (a) (b;)", "cannot be read"),
    ],
)
def test_what_hides_a_pair_is_found(expression: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        labels_of(expression)


def test_the_rules_for_prometheus_are_those_of_the_page() -> None:
    told = [
        (" ".join(rule["expr"].split()), rule.get("for", "0m"), rule["annotations"]["summary"])
        for rule in rules()
    ]
    assert told == [
        (expression, wait, f"{{{{ $labels.namespace }}}}/{{{{ $labels.disaggpair }}}}: {name}")
        for name, expression, wait in table()
    ]
    assert len({rule["alert"] for rule in rules()}) == len(table())


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda path: path.name)
def test_every_series_that_a_page_names_exists(page: Path) -> None:
    for name in _NAMED.findall(page.read_text()):
        assert series_of(name) or name == "disaggpair_router_", name
