"""The `disaggpair` command and its offline subcommands."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from disaggpair.cli import main

PAIR = """
apiVersion: disaggpair.dev/v1alpha1
kind: DisaggPair
metadata: {name: chat}
spec:
  model: {name: m}
  engine: {image: "e/vllm:v0.33.0"}
  placement: {zone: us-east-2a}
"""


def test_plan_prints_the_objects_without_an_owner(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pair.yaml"
    path.write_text(PAIR)
    assert main(["plan", "-f", str(path)]) == 0
    objects = list(yaml.safe_load_all(capsys.readouterr().out))
    kinds = {obj["kind"] for obj in objects}
    assert {"Deployment", "Service", "ConfigMap", "Role", "NetworkPolicy"} <= kinds
    assert not any("ownerReferences" in obj["metadata"] for obj in objects)


def test_plan_reads_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", _Text(PAIR))
    assert main(["plan", "-f", "-"]) == 0
    assert "chat-prefill" in capsys.readouterr().out


class _Text:
    def __init__(self, text: str) -> None:
        self._text = text

    def read(self) -> str:
        return self._text


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: [", "not valid YAML"),
        ("kind: Pod", "no object of kind DisaggPair"),
        (PAIR.replace("zone: us-east-2a", 'zone: ""'), "spec.placement.zone"),
        (PAIR.replace("v0.33.0", "v0.20.0"), "the oldest that can is 0.21"),
        (PAIR.replace("model: {name: m}", "model: {nmae: m}"), "spec.model.nmae"),
    ],
)
def test_plan_says_what_is_wrong_with_its_input(
    text: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pair.yaml"
    path.write_text(text)
    assert main(["plan", "-f", str(path)]) == 1
    captured = capsys.readouterr()
    assert sentence in captured.err
    assert captured.out == ""


def test_plan_names_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "-f", "no-such.yaml"]) == 1
    assert "no-such.yaml: No such file" in capsys.readouterr().err


def test_help_lists_every_subcommand(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    assert all(word in text for word in ("plan", "crd", "operator", "router"))


@pytest.mark.parametrize("command", ["router", "plan"])
def test_a_subcommand_loads_no_more_than_it_needs(command: str) -> None:
    program = (
        "import sys\nfrom disaggpair.cli import main\n"
        f"try: main(['{command}', '--help'])\nexcept SystemExit: pass\n"
        "sys.exit(bool({'kopf', 'kubernetes'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 0


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kopf", None)
    monkeypatch.delitem(sys.modules, "disaggpair_operator.command", raising=False)
    monkeypatch.delitem(sys.modules, "disaggpair_operator.handlers", raising=False)
    with pytest.raises(SystemExit, match=r"disaggpair\[operator\]"):
        main(["operator", "--help"])
