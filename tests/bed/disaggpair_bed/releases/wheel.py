"""The Python sources of a vLLM release, read where they lie: in its wheel, or in a folder."""

import ast
import email
import zipfile
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol

from disaggpair_bed.controlplane.errors import BedError


class WheelError(BedError):
    """A file is no wheel of vLLM."""


class Sources(Protocol):
    """Where the text of a module comes from."""

    def text(self, path: str) -> str | None:
        """The file at a path such as `vllm/v1/request.py`; None if there is none."""
        ...


@dataclass(frozen=True)
class Wheel:
    """A wheel; nothing of it is installed or imported.

    Raises:
        WheelError: on first use, if the file is no wheel of vLLM.
    """

    path: Path

    @cached_property
    def version(self) -> str:
        """The version in its metadata."""
        found = [
            name
            for name in self._archive.namelist()
            if name.startswith("vllm") and name.endswith(".dist-info/METADATA")
        ]
        if len(found) != 1:
            raise WheelError(f"{self.path} is no wheel of vLLM: it has no vllm-*.dist-info")
        metadata = email.message_from_bytes(self._archive.read(found[0]))
        return str(metadata["Version"])

    def text(self, path: str) -> str | None:
        """As `Sources`."""
        try:
            return self._archive.read(path).decode()
        except KeyError:
            return None

    @cached_property
    def _archive(self) -> zipfile.ZipFile:
        try:
            return zipfile.ZipFile(self.path)
        except (OSError, zipfile.BadZipFile) as error:
            raise WheelError(f"{self.path} is no wheel: {error}") from error


@dataclass(frozen=True)
class Folder:
    """A folder with the package `vllm` in it, as site-packages of an engine is one."""

    path: Path

    def text(self, path: str) -> str | None:
        """As `Sources`."""
        try:
            return (self.path / path).read_text()
        except FileNotFoundError:
            return None


@dataclass(frozen=True)
class Modules:
    """Syntax trees by the names of modules, each parsed once."""

    sources: Sources
    _trees: dict[str, ast.Module | None] = field(default_factory=dict)

    def tree(self, module: str) -> ast.Module | None:
        """The tree of a module or package; None if the release has none of that name."""
        if module not in self._trees:
            path = module.replace(".", "/")
            text = self.sources.text(f"{path}.py")
            if text is None:
                text = self.sources.text(f"{path}/__init__.py")
            self._trees[module] = None if text is None else ast.parse(text)
        return self._trees[module]
