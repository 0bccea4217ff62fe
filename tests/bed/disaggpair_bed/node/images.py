"""The image map: image names to directories and environment on this machine.

images:
  disaggpair/vllm-sim:v0.33.0:
    path: [/opt/sim/bin]        prepended to PATH; relative to the file's folder
    env: {SIMENGINE_VERSION: 0.33.0}
    entrypoint: [vllm, serve]   used when the container has no `command`
    files: {/opt/model: /data/model}   in the container: on this machine, read-only
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from disaggpair_bed.node.errors import ConfigError, UnknownImage


@dataclass(frozen=True)
class Image:
    """What stands in for a container image."""

    path: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    entrypoint: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    """Path in the container to path on this machine; mounted read-only."""


class ImageMap:
    """The images of one file. The file is read again when it changed: adding an image is enough
    for the pods that wait for it."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._stamp: tuple[int, int] | None = None
        self._images: Mapping[str, Image] = {}

    def find(self, name: str) -> Image:
        """The image of that very name; UnknownImage lists the names there are."""
        images = self.read()
        if name not in images:
            known = ", ".join(sorted(images)) or "none"
            where = self._path or "the image map, as none is configured"
            raise UnknownImage(f"image {name!r} is not in {where}; known images: {known}")
        return images[name]

    def read(self) -> Mapping[str, Image]:
        """All images as the file has them now; raises ConfigError."""
        if self._path is None:
            return {}
        try:
            stat = self._path.stat()
            stamp = (stat.st_mtime_ns, stat.st_ino)
            if stamp != self._stamp:
                raw = yaml.safe_load(self._path.read_text())
                self._images = parse_images(raw, str(self._path), self._path.parent)
                self._stamp = stamp
        except (OSError, yaml.YAMLError) as exc:
            raise ConfigError(f"{self._path} cannot be read as YAML: {exc}") from exc
        return self._images


def parse_images(raw: Any, source: str, base: Path) -> Mapping[str, Image]:
    """The images in a parsed file; ConfigError names what is wrong."""
    entries = raw.get("images") if isinstance(raw, dict) and set(raw) == {"images"} else None
    if not isinstance(entries, dict):
        raise ConfigError(f"{source} must be a map with the one key `images`, a map by image name")
    return {str(name): _image(entry, f"{source}: {name}", base) for name, entry in entries.items()}


def _image(raw: Any, where: str, base: Path) -> Image:
    if not isinstance(raw, dict) or set(raw) - {"path", "env", "entrypoint", "files"}:
        raise ConfigError(
            f"{where} is {raw!r}: it must be a map of path, env, entrypoint and files"
        )
    path, env, entrypoint = raw.get("path", []), raw.get("env", {}), raw.get("entrypoint", [])
    files = raw.get("files", {})
    for name, value in (("path", path), ("entrypoint", entrypoint)):
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ConfigError(f"{where}.{name} is {value!r}: it must be a list of strings")
    if not isinstance(env, dict) or not all(
        isinstance(key, str) and isinstance(value, str | int | float) for key, value in env.items()
    ):
        raise ConfigError(f"{where}.env is {env!r}: it must be a map of strings")
    if not isinstance(files, dict) or not all(
        isinstance(item, str) and item.startswith("/") for pair in files.items() for item in pair
    ):
        raise ConfigError(f"{where}.files is {files!r}: it must be a map of absolute paths")
    return Image(
        path=tuple(str((base / item).absolute()) for item in path),
        env={key: str(value) for key, value in env.items()},
        entrypoint=tuple(entrypoint),
        files=files,
    )
