"""The code of vLLM releases, in `${XDG_CACHE_HOME:-~/.cache}/disaggpair/wheels`.

A wheel is 320 MB and is downloaded when asked for and not there; one that a person puts there is
taken. Beside it lies what runs of it without its compiled parts: its Python, and metadata by which
vLLM takes the machine for its CPU platform.
"""

import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from disaggpair_bed.cache import cache_root, held
from disaggpair_bed.controlplane.errors import BuildError, PrerequisiteError
from disaggpair_bed.controlplane.progress import Say

_PYTHON: Final = (".py", ".json")
_WAITING: Final = "wheels: another process is fetching, waiting for it"


def wheel(version: str, say: Say, environment: Mapping[str, str] = os.environ) -> Path:
    """The wheel of a release, downloaded now if it is not there.

    Raises:
        PrerequisiteError: it is not there, and uv, which downloads it, is not on PATH.
        BuildError: pip found none, or failed.
    """
    folder = _folder(environment)
    with held(folder / "download.lock", say, _WAITING):
        if (found := _wheel_in(folder, version)) is None:
            say(f"wheels: downloading vLLM {version} (once; 320 MB)")
            _download(version, folder)
            found = _wheel_in(folder, version)
    if found is None:
        raise BuildError(f"pip downloaded no wheel of vLLM {version}")
    return found


def sources(version: str, say: Say, environment: Mapping[str, str] = os.environ) -> Path:
    """A folder with the package `vllm` of a release, to stand first on PYTHONPATH.

    Raises:
        PrerequisiteError, BuildError: as `wheel`.
    """
    folder = _folder(environment) / f"vllm-{version}-python"
    with held(folder.with_name(f"{folder.name}.lock"), say, _WAITING):
        if not folder.is_dir():
            unpack(wheel(version, say, environment), version, folder)
    return folder


def unpack(archive: Path, version: str, folder: Path) -> None:
    """Put the Python of a wheel into a folder, which is there at the end or not at all."""
    scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f"{folder.name}."))
    try:
        with zipfile.ZipFile(archive) as opened:
            members = [name for name in opened.namelist() if name.endswith(_PYTHON)]
            opened.extractall(scratch, [name for name in members if name.startswith("vllm/")])
        metadata = scratch / f"vllm-{version}+cpu.dist-info" / "METADATA"
        metadata.parent.mkdir()
        metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")
        scratch.rename(folder)
    except BaseException:
        shutil.rmtree(scratch)
        raise


def _folder(environment: Mapping[str, str]) -> Path:
    folder = cache_root(environment) / "wheels"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _wheel_in(folder: Path, version: str) -> Path | None:
    return next(iter(sorted(folder.glob(f"vllm-{version}-*.whl"))), None)


def _download(version: str, folder: Path) -> None:
    uv = shutil.which("uv")
    if uv is None:
        raise PrerequisiteError(
            f"uv is not on PATH, and it downloads vLLM {version}: put the wheel into {folder}."
        )
    # In a folder of its own: a wheel that is there is whole.
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        pip = [uv, "tool", "run", "--quiet", "pip", "download", "--quiet", "--no-deps"]
        done = subprocess.run(
            [*pip, "--only-binary=:all:", "--dest", scratch, f"vllm=={version}"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            last = done.stderr.splitlines()[-5:]
            raise BuildError("\n".join([f"pip download vllm=={version} failed:", *last]))
        for path in Path(scratch).glob("*.whl"):
            path.rename(folder / path.name)
