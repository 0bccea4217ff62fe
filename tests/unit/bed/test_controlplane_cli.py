import argparse
import importlib
import subprocess
import sys
from types import ModuleType

import pytest

from disaggpair_bed import cli
from disaggpair_bed.controlplane.errors import BedError


def fake_part(monkeypatch: pytest.MonkeyPatch, result: int | BaseException) -> None:
    """Make a part `fake` of one flag, which returns or raises the result."""
    module = ModuleType("fake_part")

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--size", type=int)

    def run(args: argparse.Namespace) -> int:
        if isinstance(result, BaseException):
            raise result
        return result + (args.size or 0)

    module.__dict__.update(add_arguments=add_arguments, run=run)
    monkeypatch.setitem(sys.modules, "fake_part", module)
    monkeypatch.setitem(cli.PARTS, "fake", cli.Part("fake_part", "a part of the test"))


@pytest.mark.parametrize("name", sorted(cli.PARTS))
def test_every_part_is_there(name: str) -> None:
    module = importlib.import_module(cli.PARTS[name].module)
    module.add_arguments(argparse.ArgumentParser())
    assert callable(module.run)


def test_the_status_of_a_part_is_the_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_part(monkeypatch, 3)
    assert cli.main(["fake", "--size", "4"]) == 7


def test_an_error_of_the_bed_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_part(monkeypatch, BedError("go is not on PATH"))
    assert cli.main(["fake"]) == 1
    assert capsys.readouterr().err == "disaggpair-bed fake: go is not on PATH\n"


def test_an_interrupt_has_the_shells_status(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_part(monkeypatch, KeyboardInterrupt())
    assert cli.main(["fake"]) == 130


def test_help_lists_the_parts_and_imports_none() -> None:
    code = (
        "import sys\n"
        "from disaggpair_bed import cli\n"
        "try:\n    cli.main(['--help'])\n"
        "finally:\n    assert not set(sys.modules) & {p.module for p in cli.PARTS.values()}\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert all(name in done.stdout for name in cli.PARTS)


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["dwon"])
    assert "invalid choice: 'dwon'" in capsys.readouterr().err
