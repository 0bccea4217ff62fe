"""A directory as the kubelet mounts a Secret: files behind a link that is swapped at once."""

import shutil
from collections.abc import Mapping
from pathlib import Path


class SecretMount:
    """Writes the files of a mount. Every name in it is a link into the present version."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._version = 0
        directory.mkdir(exist_ok=True)

    def write(self, files: Mapping[str, str]) -> None:
        """Replace all files, in the order of the kubelet: link, new names, old names, old data."""
        self._version += 1
        data = self._directory / f"..version_{self._version}"
        data.mkdir()
        for name, text in files.items():
            (data / name).write_text(text)
        link, fresh = self._directory / "..data", self._directory / "..data_tmp"
        old = link.resolve() if link.is_symlink() else None
        fresh.symlink_to(data.name)
        fresh.replace(link)
        for name in files:
            if not (self._directory / name).is_symlink():
                (self._directory / name).symlink_to(Path("..data") / name)
        for path in self._directory.iterdir():
            if not path.name.startswith("..") and path.name not in files:
                path.unlink()
        if old is not None:
            shutil.rmtree(old)
