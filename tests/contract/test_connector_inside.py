"""The tests of `tests/inside`, run in the engines' interpreter: vLLM's own classes with ours."""

import json
import os
import subprocess
import sysconfig
from pathlib import Path

import pytest

from disaggpair_bed.cpu import model
from disaggpair_bed.cpu.image import engine_environment
from disaggpair_bed.cpu.install import Engines

pytestmark = [pytest.mark.engines, pytest.mark.timeout(1800)]

ROOT = Path(__file__).resolve().parents[2]
INSIDE = ROOT / "tests" / "inside"
FILES = sorted(path.name for path in INSIDE.glob("test_*.py"))

Results = dict[str, list[dict[str, str]]]


@pytest.fixture(scope="module")
def results(
    request: pytest.FixtureRequest, cpu_engines: Engines, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Results, str]:
    """What came of the tests of each file that is asked for, and what was printed.

    One process runs them all, since the import of vLLM takes longer than most of them.
    """
    asked = {
        str(item.callspec.params["file"])
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.path == Path(__file__)
    }
    lines = tmp_path_factory.mktemp("inside") / "results.jsonl"
    lines.touch()
    done = subprocess.run(
        [
            str(cpu_engines.python),
            str(INSIDE / "run.py"),
            sysconfig.get_path("purelib"),
            str(lines),
            *sorted(asked),
        ],
        cwd=ROOT,
        env={
            **os.environ,
            **engine_environment(calm=False),
            "PYTHONPATH": f"{ROOT / 'connector'}:{INSIDE}",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "TOYPAIR_MODEL": str(model.ensure(cpu_engines, print)),
            "VLLM_LOGGING_LEVEL": "CRITICAL",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    found: Results = {}
    for line in map(json.loads, lines.read_text().splitlines()):
        found.setdefault(line["file"], []).append(line)
    return found, done.stdout


@pytest.mark.parametrize("file", FILES)
def test_the_halves_do_right_inside_an_engine(file: str, results: tuple[Results, str]) -> None:
    found, printed = results
    ran = found.get(file, [])
    failed = [f"{each['test']}\n{each['text']}" for each in ran if each["outcome"] == "failed"]
    assert not failed, "\n\n".join(failed)
    assert ran, f"no test of {file} ran:\n{printed[-4000:]}"
