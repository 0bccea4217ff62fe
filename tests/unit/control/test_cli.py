"""The `disaggpair` command and its offline subcommands."""

import io
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


def test_plan_names_the_secret_that_the_operator_makes_and_shows_no_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pair.yaml"
    path.write_text(PAIR)
    assert main(["plan", "-f", str(path)]) == 0
    text = capsys.readouterr().out
    assert text.startswith(
        "# Secret default/chat-keys: the operator makes it once, with random values for "
        "lease-key and conversation-key\n"
    )
    assert "Secret" not in [obj["kind"] for obj in yaml.safe_load_all(text)]


def test_plan_reads_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(PAIR))
    assert main(["plan", "-f", "-"]) == 0
    assert "chat-prefill" in capsys.readouterr().out


BOMB = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
)


def headed(metadata: str) -> str:
    return PAIR.replace("metadata: {name: chat}", f"metadata: {metadata}")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: [", "the YAML cannot be read"),
        ("kind: Pod", "no object of kind DisaggPair"),
        (PAIR.replace("zone: us-east-2a", 'zone: ""'), "spec.placement.zone"),
        (PAIR.replace("v0.33.0", "v0.20.0"), "the oldest that can is 0.21"),
        (PAIR.replace("model: {name: m}", "model: {nmae: m}"), "spec.model.nmae"),
        (headed(f"{{name: {'x' * 253}, namespace: 7}}"), f"{'x' * 253}: metadata.namespace"),
        (headed("[1]"), "metadata is [1], but must be a mapping"),
        (headed("x"), 'metadata is "x", but must be a mapping'),
        (headed("{name: chat, namespace: 7}"), "metadata.namespace is 7, but must be"),
        (headed("{name: chat, namespace: [a]}"), 'metadata.namespace is ["a"], but must be'),
        (headed('{name: chat, namespace: "A B"}'), 'metadata.namespace is "A B", but must be'),
        (headed('{name: "a\\e[31mb"}'), '"a\\u001b[31mb"'),
        (headed('{name: "a\\nb"}'), '"a\\nb"'),
        (headed('{name: "a\\u2028b"}'), '"a\\u2028b"'),
        (PAIR + '  "\\x9b": 1', "spec[\\x9b] is not a field"),
        (PAIR + "  1: 2", "spec[1] is not a field"),
        (PAIR + "  suspend: 0x" + "f" * 9999, "a number has 10001 characters"),
        (PAIR + "  suspend: &a [*a]", "contains itself"),
        (PAIR + "  suspend: &a {<<: *a}", "contains itself"),
        (PAIR + "  prefill: {podTemplate: " + "{a: " * 3000 + "}" * 3001, "nested deeper than 64"),
        (PAIR + "---\n" + BOMB, "more than 50,000 values"),
        (PAIR + "---\n" + "[" * 500_000, "nested deeper than 64"),
        (PAIR + "---\n[" + ",".join("a" * 60_000) + "]", "more than 50,000 values"),
        (PAIR + "#" * 2**20, "more than 1,048,576 characters"),
        (PAIR + "  suspend: !!bool maybe", "cannot be read as bool"),
        (PAIR + "  suspend: !!int ''", "cannot be read as int"),
        (PAIR + "  suspend: !!set {a}", "tag"),
        (PAIR + "  suspend: !!python/object:os.system x", "tag"),
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
    lines = captured.err.removesuffix("\n").split("\n")
    assert all(line.startswith("disaggpair plan: ") and line.isprintable() for line in lines)
    assert captured.out == ""


def test_plan_refuses_a_file_that_is_no_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pair.yaml"
    path.write_bytes(b"\xff\xfe")
    assert main(["plan", "-f", str(path)]) == 1
    assert "pair.yaml is not UTF-8 text" in capsys.readouterr().err


def test_plan_reads_an_anchor_as_its_copies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pair.yaml"
    path.write_text(PAIR + "  prefill: &role {args: [--seed=7]}\n  decode: *role\n")
    assert main(["plan", "-f", str(path)]) == 0
    assert capsys.readouterr().out.count("- --seed=7") == 2


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
