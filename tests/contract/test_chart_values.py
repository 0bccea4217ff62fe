"""The chart's values, their schema, its README and its metadata agree."""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from disaggpair_operator import names
from disaggpair_operator.api.crd import CRD_NAME
from disaggpair_operator.settings import BINDS, LOG_LEVELS, PULL_POLICIES

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "disaggpair"


def read(name: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((CHART / name).read_text())
    return document


def settings(values: dict[str, Any], schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Paths of the values that have no further named values below them."""
    for name, value in values.items():
        below = schema["properties"][name].get("properties")
        if below and isinstance(value, dict) and name != "resources":
            yield from settings(value, schema["properties"][name], f"{path}{name}.")
        else:
            yield path + name


def objects(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for child in schema.get("properties", {}).values():
        if "properties" in child:
            yield child
            yield from objects(child)


def test_the_schema_has_the_values_and_no_others() -> None:
    values, schema = read("values.yaml"), json.loads((CHART / "values.schema.json").read_text())
    assert set(schema["properties"]) - set(values) == {"global"}
    assert set(values) <= set(schema["properties"])
    for name, value in values.items():
        fields = schema["properties"][name].get("properties")
        if fields:
            assert set(value) == set(fields), name


def test_the_schema_refuses_unknown_keys_everywhere() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert all(part["additionalProperties"] is False for part in (schema, *objects(schema)))


def test_the_readme_names_every_value() -> None:
    values, schema = read("values.yaml"), json.loads((CHART / "values.schema.json").read_text())
    cells = re.findall(r"^\| (`[^|]+) \|", (CHART / "README.md").read_text(), flags=re.MULTILINE)
    named: set[str] = set()
    for cell in cells:
        first, *rest = re.findall(r"`([^`]+)`", cell)
        parent = first.rpartition(".")[0]
        named |= {first, *(parent + word if word.startswith(".") else word for word in rest)}
    assert named == set(settings(values, schema))


def test_the_schema_allows_what_the_operator_takes() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]
    own = schema["settings"]["properties"]
    assert own["bindAddress"]["enum"] == list(BINDS)
    assert own["logLevel"]["enum"] == list(LOG_LEVELS)
    assert schema["image"]["properties"]["pullPolicy"]["enum"] == list(PULL_POLICIES)


def test_the_chart_has_the_project_version_and_names_the_kind() -> None:
    chart = read("Chart.yaml")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert chart["version"] == chart["appVersion"] == project["version"]
    notes = chart["annotations"]
    (image,) = yaml.safe_load(notes["artifacthub.io/images"])
    assert image["image"] == f"{read('values.yaml')['image']['repository']}:{project['version']}"
    (kind,) = yaml.safe_load(notes["artifacthub.io/crds"])
    assert (kind["kind"], kind["version"], kind["name"]) == (names.KIND, names.VERSION, CRD_NAME)
    assert notes["artifacthub.io/license"] == project["license"]
