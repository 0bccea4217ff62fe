"""The CRD document and the files that are generated from the models."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from disaggpair_operator.api import command
from disaggpair_operator.api.crd import crd, crd_yaml, spec_schema

ROOT = Path(__file__).parents[3]


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(words))


def test_the_generated_files_are_those_of_the_models() -> None:
    assert command.differences(ROOT) == []


def test_the_text_is_the_document_and_the_same_every_time() -> None:
    assert yaml.safe_load(crd_yaml()) == crd()
    assert crd_yaml() == crd_yaml()


def test_check_names_a_missing_and_a_changed_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "crds").mkdir()
    assert run("--write", "--root", str(tmp_path)) == 0
    assert run("--check", "--root", str(tmp_path)) == 0
    with (tmp_path / "docs/api.md").open("a") as page:
        page.write("\n")
    (tmp_path / "crds/disaggpair.dev_disaggpairs.yaml").unlink()
    capsys.readouterr()
    assert run("--check", "--root", str(tmp_path)) == 1
    assert capsys.readouterr().err.splitlines() == [
        "crds/disaggpair.dev_disaggpairs.yaml differs from the models: run disaggpair crd --write",
        "docs/api.md differs from the models: run disaggpair crd --write",
    ]


def test_a_folder_that_is_no_repository_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--write", "--root", str(tmp_path)) == 2
    assert "name the repository with --root" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_without_an_option_the_crd_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    assert capsys.readouterr().out == crd_yaml()


def test_the_kind_is_not_listed_with_all() -> None:
    assert "categories" not in crd()["spec"]["names"]


def test_every_column_reads_a_field_of_the_schema() -> None:
    (version,) = crd()["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    for column in version["additionalPrinterColumns"]:
        steps = column["jsonPath"].split("[?")[0].strip(".").split(".")
        if steps[0] != "metadata":
            node = schema
            for step in steps:
                node = node["properties"][step]


def test_every_field_has_a_description() -> None:
    assert [
        path for path, node in _fields("spec", spec_schema()) if not node.get("description")
    ] == []


def test_every_rule_names_a_field_below_its_part() -> None:
    for path, node in [("spec", spec_schema()), *_fields("spec", spec_schema())]:
        for rule in node.get("x-kubernetes-validations", ()):
            below = node
            for step in rule.get("fieldPath", "").strip(".").split("."):
                below = below["properties"][step] if step else below
            assert rule["message"], path


def _fields(path: str, node: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, child in node.get("properties", {}).items():
        yield f"{path}.{name}", child
        yield from _fields(f"{path}.{name}", child)
        yield from _fields(f"{path}.{name}[]", child.get("items", {}))
