"""Writing a volume so that a reader never sees half of an update, as the kubelet does it.

volume/
  ..<number>/config.json      one version
  ..data -> ..<number>        swapped by rename
  config.json -> ..data/config.json
"""

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from disaggpair_bed.node.payload import File

_DATA = "..data"


def write_atomically(directory: Path, files: Mapping[str, File]) -> bool:
    """Make the volume hold exactly `files`; false when it does already."""
    directory.mkdir(parents=True, exist_ok=True)
    if _read(directory) == dict(files):
        return False
    version = Path(tempfile.mkdtemp(prefix="..", dir=directory))
    version.chmod(0o755)
    for path, file in files.items():
        target = version / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
        target.chmod(file.mode)
    old = os.readlink(directory / _DATA) if (directory / _DATA).is_symlink() else None
    swap = directory / "..data_tmp"
    swap.symlink_to(version.name)
    swap.rename(directory / _DATA)
    _link_names(directory, {path.split("/")[0] for path in files})
    if old:
        shutil.rmtree(directory / old)
    return True


def _link_names(directory: Path, names: set[str]) -> None:
    present = {entry.name for entry in directory.iterdir() if not entry.name.startswith("..")}
    for name in names - present:
        (directory / name).symlink_to(f"{_DATA}/{name}")
    for name in present - names:
        (directory / name).unlink()


def _read(directory: Path) -> dict[str, File] | None:
    data = directory / _DATA
    if not data.is_symlink():
        return None
    root = data.resolve()
    return {
        str(path.relative_to(root)): File(path.read_bytes(), path.stat().st_mode & 0o7777)
        for path in root.rglob("*")
        if path.is_file()
    }
