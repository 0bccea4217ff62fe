"""Client libraries that are installed once, in `${XDG_CACHE_HOME:-~/.cache}/disaggpair/clients`.

Each has an environment of its own, by content: the key covers the wanted packages and the
interpreter. No package is younger than a week at the day in `NEWEST`.
"""

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from disaggpair_bed.cache import cache_root, held
from disaggpair_bed.controlplane.errors import BuildError, PrerequisiteError
from disaggpair_bed.controlplane.progress import Say

NEWEST: Final = "2026-11-23T00:00:00Z"
PYTHON: Final[Mapping[str, Sequence[str]]] = {
    "openai": ("openai==3.57.0",),
    "anthropic": ("anthropic==2.12.0",),
    "langchain": ("langchain-openai==1.7.4",),
    # 1.107.0 was a compromised release; this one is older than it.
    "litellm": ("litellm==1.100.1",),
    "agents": ("openai-agents==0.24.0",),
    "benchmark": ("aiohttp>=3.13", "numpy>=2", "pandas>=2", "tqdm>=4.66", "transformers>=4.46"),
}
"""Packages by the name of the environment."""
NODE: Final = ("openai@7.59.0",)
VLLM: Final = "0.33.0"
"""Release whose source has the benchmark."""

_MARKER: Final = "complete"
_KEPT_LINES: Final = 20
_BENCHMARK: Final = "benchmarks/multi_turn"


def python(name: str, say: Say, environment: Mapping[str, str] = os.environ) -> Path:
    """The interpreter of an environment of `PYTHON`, installed now if it is not there.

    Raises:
        PrerequisiteError: uv is missing.
        BuildError: uv failed.
    """
    uv = _program("uv")

    def install(folder: Path) -> None:
        _run([uv, "venv", "--quiet", "--python", sys.executable, str(folder)])
        into = ["--python", str(folder / "bin/python"), "--exclude-newer", NEWEST]
        _run([uv, "pip", "install", "--quiet", *into, *PYTHON[name]])

    return _ensured(f"python-{name}", (*PYTHON[name], NEWEST), install, say, environment) / (
        "bin/python"
    )


def node(say: Say, environment: Mapping[str, str] = os.environ) -> Path:
    """A folder from which scripts can import the packages of `NODE`.

    Raises:
        PrerequisiteError: node or npm is missing.
        BuildError: npm failed.
    """
    npm, _ = _program("npm"), _program("node")

    def install(folder: Path) -> None:
        folder.mkdir()
        (folder / "package.json").write_text('{"private": true, "type": "module"}\n')
        quiet = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
        _run([npm, "install", *quiet, f"--before={NEWEST}", *NODE], folder)

    return _ensured("node", (*NODE, NEWEST), install, say, environment)


def benchmark(say: Say, environment: Mapping[str, str] = os.environ) -> Path:
    """The folder with vLLM's own multi-turn benchmark, out of its source distribution.

    Raises:
        PrerequisiteError: uv is missing.
        BuildError: the source distribution cannot be had or has no benchmark.
    """
    uv = _program("uv")

    def install(folder: Path) -> None:
        scratch = tempfile.mkdtemp(dir=folder.parent)
        try:
            pip = [uv, "tool", "run", "--quiet", "pip", "download", "--quiet", "--no-deps"]
            source = ["--no-binary", "vllm", "--no-build-isolation", "--no-clean"]
            # To name its version, vLLM's build wants torch and fails without: what pip has
            # unpacked until then is all that is needed.
            with contextlib.suppress(BuildError):
                wanted = [*source, "--dest", scratch, f"vllm=={VLLM}"]
                _run([*pip, *wanted], Path(scratch), {"TMPDIR": scratch})
            found = next(Path(scratch).glob(f"*/*/{_BENCHMARK}"), None)
            if found is None:
                raise BuildError(f"pip brought no source of vLLM {VLLM} with {_BENCHMARK}")
            shutil.copytree(found, folder)
        finally:
            shutil.rmtree(scratch)

    return _ensured("vllm", (VLLM,), install, say, environment)


def _ensured(
    name: str,
    wanted: Sequence[str],
    install: Callable[[Path], None],
    say: Say,
    environment: Mapping[str, str],
) -> Path:
    key = hashlib.sha256("\0".join([*wanted, sys.version, sys.base_prefix]).encode()).hexdigest()
    folder = cache_root(environment) / "clients" / f"{name}-{key[:16]}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    waiting = f"clients: another process is installing {name}, waiting for it"
    with held(folder.with_suffix(".lock"), say, waiting):
        if not (folder / _MARKER).is_file():
            say(f"clients: installing {name} (once)")
            shutil.rmtree(folder, ignore_errors=True)
            install(folder)
            (folder / _MARKER).touch()
    return folder


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise PrerequisiteError(f"{name} is not on PATH, and it installs client libraries")
    return found


def _run(
    command: Sequence[str], folder: Path | None = None, more: Mapping[str, str] | None = None
) -> None:
    """Run outside the tree, whose own settings of uv do not apply here."""
    done = subprocess.run(
        command,
        cwd=folder or Path(tempfile.gettempdir()),
        env={**os.environ, "UV_PYTHON_DOWNLOADS": "never", **(more or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = (done.stdout + done.stderr).splitlines()[-_KEPT_LINES:]
        raise BuildError("\n".join([f"{' '.join(command[:3])} failed:", *last]))
