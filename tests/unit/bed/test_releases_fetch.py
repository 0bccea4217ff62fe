"""Where a release's code is kept, and how it comes there."""

import os
import stat
import sys
import zipfile
from pathlib import Path

import pytest

from disaggpair_bed.controlplane.errors import BuildError, PrerequisiteError
from disaggpair_bed.cpu.install import VLLM_RELEASE, Engines
from disaggpair_bed.releases import fetch
from disaggpair_bed.releases.released import ProgramError, release_scheduler_classes

NAME = "vllm-0.33.0-cp38-abi3-manylinux_2_28_x86_64.whl"

FAKE_UV = """#!{python}
import sys
import zipfile
from pathlib import Path

with open({log!r}, "a") as log:
    print(" ".join(sys.argv[1:]), file=log)
if {fails}:
    print("no such release", file=sys.stderr)
    sys.exit(1)
folder = Path(sys.argv[sys.argv.index("--dest") + 1])
with zipfile.ZipFile(folder / {name!r}, "w") as archive:
    archive.writestr("vllm/__init__.py", "__version__ = '0.33.0'")
    archive.writestr("vllm/_C.abi3.so", "compiled")
    archive.writestr("vllm/data.json", "{{}}")
    archive.writestr("vllm-0.33.0.dist-info/METADATA", "Name: vllm")
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the wheels."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "disaggpair" / "wheels"


def put_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool = False) -> Path:
    """A uv that stands in for pip's download; the file with its calls."""
    log = tmp_path / "calls"
    program = tmp_path / "bin" / "uv"
    program.parent.mkdir()
    program.write_text(FAKE_UV.format(python=sys.executable, log=str(log), name=NAME, fails=fails))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(program.parent))
    return log


def test_a_wheel_is_downloaded_once(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = put_uv(tmp_path, monkeypatch)
    said: list[str] = []
    assert fetch.wheel("0.33.0", said.append) == cache / NAME
    assert fetch.wheel("0.33.0", said.append) == cache / NAME
    (call,) = calls.read_text().splitlines()
    assert call.startswith("tool run --quiet pip download --quiet --no-deps")
    assert call.endswith("vllm==0.33.0")
    assert len(said) == 1


def test_a_wheel_that_a_person_put_there_is_taken(cache: Path) -> None:
    cache.mkdir(parents=True)
    (cache / NAME).write_bytes(b"")
    assert fetch.wheel("0.33.0", print) == cache / NAME


def test_a_download_that_fails_leaves_nothing(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_uv(tmp_path, monkeypatch, fails=True)
    with pytest.raises(BuildError, match="no such release"):
        fetch.wheel("0.33.0", print)
    assert [path.name for path in cache.iterdir()] == ["download.lock"]


def test_without_uv_the_sentence_says_where_a_wheel_may_be_put(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PrerequisiteError, match=str(cache)):
        fetch.wheel("0.33.0", print)


def test_the_python_of_a_wheel_is_unpacked_as_the_cpu_platform(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_uv(tmp_path, monkeypatch)
    folder = fetch.sources("0.33.0", print)
    assert fetch.sources("0.33.0", print) == folder
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    stub = "vllm-0.33.0+cpu.dist-info/METADATA"
    assert files == [stub, "vllm/__init__.py", "vllm/data.json"]
    assert "Version: 0.33.0+cpu" in (folder / stub).read_text()


def test_a_wheel_that_breaks_off_is_not_unpacked(cache: Path) -> None:
    cache.mkdir(parents=True)
    (cache / NAME).write_bytes(b"PK")
    with pytest.raises(zipfile.BadZipFile):
        fetch.sources("0.33.0", print)
    assert not [path for path in cache.iterdir() if path.is_dir()]


def test_a_program_imports_the_release_before_the_engines(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_uv(tmp_path, monkeypatch)
    engines = tmp_path / "engines"
    (engines / "bin").mkdir(parents=True)
    (engines / "bin" / "python").symlink_to(sys.executable)
    code = release_scheduler_classes("0.33.0", Engines(engines), print)
    program = "import sys, vllm, disaggpair_connector; print(vllm.__version__, sys.stdin.read())"
    assert code.run("-c", program, given="given").split() == ["0.33.0", "given"]
    with pytest.raises(ProgramError, match="one fault"):
        code.run("-c", "raise SystemExit('one fault')")


def test_the_engines_own_release_needs_no_wheel(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.defpath)
    release_scheduler_classes(VLLM_RELEASE, Engines(tmp_path), print)
    assert not cache.exists()
