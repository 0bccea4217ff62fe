"""The connector's wheel, as its Dockerfile installs it: unpacked."""

import email
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import disaggpair_connector

CONNECTOR = Path(disaggpair_connector.__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    subprocess.run(
        ["uv", "build", "--quiet", "--wheel", "--out-dir", str(out), str(CONNECTOR)],
        check=True,
    )
    (built,) = out.glob("disaggpair_connector-*.whl")
    return built


def test_the_wheel_requires_nothing(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(archive.read(name))
    required = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert required == []


def test_the_wheel_unpacked_is_installed(wheel: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "zipfile", "-e", str(wheel), str(tmp_path)], check=True)
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); "
        "from importlib.metadata import version; import disaggpair_connector as ours; "
        "print(ours.__file__, ours.__version__ == version('disaggpair-connector'))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == [str(tmp_path / "disaggpair_connector/__init__.py"), "True"]


def test_the_image_is_built_the_same_way() -> None:
    instructions = (CONNECTOR / "Dockerfile").read_text()
    assert "python3 -m zipfile -e /wheels/disaggpair_connector-*.whl" in instructions
    assert "pip install" not in instructions
