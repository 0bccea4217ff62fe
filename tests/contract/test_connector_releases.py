"""What the connector relies on in vLLM, in every release that it accepts.

The snapshots under `releases/` were read out of the wheels with `disaggpair-bed releases snapshot`.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import disaggpair_bed
from disaggpair_bed.cpu.image import engine_environment
from disaggpair_bed.cpu.install import VLLM_RELEASE, Engines
from disaggpair_bed.releases import command, signature, snapshot, uses
from disaggpair_bed.releases.relied import CLASSES, FACTS
from disaggpair_bed.releases.wheel import Folder
from disaggpair_connector import compat

FOLDER = Path(__file__).parent / "releases"
BED = Path(disaggpair_bed.__file__).parents[1]
DECLARED = {relied.name: {*relied.methods, *relied.attributes} for relied in CLASSES}


def taken(version: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{version}.json").read_text())
    return found


VERSIONS = sorted(path.stem for path in FOLDER.glob("*.json"))
ACCEPTED = [version for version in VERSIONS if compat.vllm_fault(version) is None]


def test_every_minor_release_that_the_connector_accepts_has_a_snapshot() -> None:
    (major, lowest), (_, below) = compat.LOWEST, compat.BELOW
    accepted = [f"{major}.{minor}" for minor in range(lowest, below)]
    assert [version.rpartition(".")[0] for version in ACCEPTED] == accepted


@pytest.mark.parametrize("version", VERSIONS)
def test_a_snapshot_is_of_what_is_declared_today(version: str) -> None:
    """If not: print it anew with `disaggpair-bed releases snapshot --wheel PATH`."""
    found = taken(version)
    assert found["vllm"] == version
    assert sorted(found["facts"]) == sorted(fact.__name__ for fact in FACTS)
    assert set(found["classes"]) <= set(DECLARED)


@pytest.mark.parametrize("version", ACCEPTED)
def test_an_accepted_release_has_all_that_the_connector_relies_on(version: str) -> None:
    assert command.differences(taken(version)) == []


def test_a_release_below_the_range_lacks_what_the_connector_relies_on() -> None:
    lacking = snapshot.lacks(taken("0.26.0"))
    assert "NixlPullConnector.bind_kv_cache_manager is not there." in lacking


def test_what_the_connector_takes_from_vllm_is_declared() -> None:
    found = uses.uses(command.CONNECTOR)
    undeclared = [use for use in found if use.member not in DECLARED.get(use.class_name, ())]
    assert sorted(undeclared) == []


def test_what_is_declared_stands_in_the_connector() -> None:
    identifiers = uses.identifiers(command.CONNECTOR)
    unused = [f"{name} {member}" for name in DECLARED for member in DECLARED[name] - identifiers]
    assert unused == []


def test_every_class_that_the_connector_builds_on_is_declared_as_overridden() -> None:
    bases = {subclass.base for subclass in uses.subclasses(command.CONNECTOR)}
    assert bases == {relied.name for relied in CLASSES if relied.overrides}


@pytest.mark.engines
@pytest.mark.timeout(600, func_only=True)
def test_the_live_signatures_of_an_engine_are_those_of_its_snapshot(cpu_engines: Engines) -> None:
    expected = {
        f"{name}.{method}": signature.parse(text).parameters
        for name, found in taken(VLLM_RELEASE)["classes"].items()
        for method, text in found["methods"].items()
    }
    live = run_in(
        cpu_engines, "-m", "disaggpair_bed.releases.live", given=json.dumps(sorted(expected))
    )
    assert {
        name: signature.parse(text).parameters for name, text in json.loads(live).items()
    } == expected


@pytest.mark.engines
def test_an_engine_holds_the_code_of_its_snapshot(cpu_engines: Engines) -> None:
    (package,) = cpu_engines.folder.glob("lib/python*/site-packages/vllm")
    assert snapshot.take(VLLM_RELEASE, Folder(package.parent)) == taken(VLLM_RELEASE)


def run_in(engines: Engines, *arguments: str, given: str) -> str:
    done = subprocess.run(
        [engines.python, *arguments],
        input=given,
        env={**os.environ, **engine_environment(), "PYTHONPATH": str(BED)},
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
