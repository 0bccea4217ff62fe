"""The wheels as a user gets them: what they need, what they hold, what they import."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UV = shutil.which("uv") or "uv"


def run(*command: str | Path) -> str:
    environment = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("dist")
    for package in ("disaggpair", "disaggpair-connector"):
        run(UV, "build", "--quiet", "--wheel", "--out-dir", folder, "--package", package)
    return {path.name.split("-")[0]: path for path in folder.glob("*.whl")}


def test_the_wheel_holds_packages_and_no_folder_operator(wheels: dict[str, Path]) -> None:
    with zipfile.ZipFile(wheels["disaggpair"]) as archive:
        roots = {name.split("/")[0] for name in archive.namelist()}
    assert {"disaggpair", "disaggpair_operator", "disaggpair_router"} <= roots
    assert "operator" not in roots


@pytest.mark.parametrize(
    ("extra", "absent", "probe"),
    [
        ("router", "kopf", "disaggpair_router.app"),
        ("operator", "orjson", "disaggpair_operator.handlers"),
    ],
)
def test_an_extra_brings_what_it_needs_and_not_the_others(
    wheels: dict[str, Path], extra: str, absent: str, probe: str, tmp_path: Path
) -> None:
    run(UV, "venv", "--quiet", "--python", sys.executable, tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    requirement = f"disaggpair[{extra}] @ {wheels['disaggpair'].as_uri()}"
    run(UV, "pip", "install", "-q", "--python", python, requirement, wheels["disaggpair_connector"])
    program = f"import importlib.util as u, {probe}; print(u.find_spec('{absent}'))"
    assert run(python, "-I", "-c", program).strip() == "None"
    assert "usage: disaggpair" in run(tmp_path / "venv" / "bin" / "disaggpair", "--help")
