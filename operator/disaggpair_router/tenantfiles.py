"""Keys of tenants in a directory, as Kubernetes mounts a Secret, read again when it changes.

A file is a tenant: its name is the tenant's, and each of its lines is the SHA-256 digest of one
of its API keys in hexadecimal. Empty lines, and what follows a `#`, are passed over. Names that
begin with a dot are no tenants; Kubernetes keeps the content of a Secret in such directories and
swaps the link `..data` to change all files at once.
"""

import asyncio
import hashlib
import logging
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from disaggpair_router.errors import ConfigError
from disaggpair_router.tenants import is_name

logger = logging.getLogger(__name__)

Use = Callable[[Mapping[bytes, str]], None]
_State = tuple[tuple[str, int, int, int], ...]

_LINK: Final = "..data"
_MAX_FILE_BYTES: Final = 2**20
"""As much as a Secret can hold."""
_DIGEST: Final = re.compile(r"[0-9a-fA-F]{64}")
_OF_NOTHING: Final = hashlib.sha256(b"").digest()


class TenantFiles:
    """Reads a directory, and tells `use` the tenants' names by the digests of their keys."""

    def __init__(self, directory: Path, *, use: Use) -> None:
        self._directory = directory
        self._use = use
        self._state: _State | None = None
        """What the directory looked like when it was last read with success."""
        self._fault = ""
        """What was last said of a bad directory."""

    def load(self) -> None:
        """Read the directory; ConfigError when a file is bad. For the start."""
        self._state = _state(self._directory)
        self._take(read_digests(self._directory))

    async def run(self, every_s: float) -> None:
        """Look at the directory again and again; cancel to stop."""
        while True:
            await asyncio.sleep(every_s)
            await self.look()

    async def look(self) -> None:
        """Read the directory if it has changed. A bad one is logged, and the old keys stay."""
        try:
            digests = await asyncio.to_thread(self._changed)
        except ConfigError as error:
            # What is bad may be half written: it is read again each time, and said once.
            if str(error) != self._fault:
                self._fault = str(error)
                logger.error("the keys of the tenants stay as they were: %s", error)
        else:
            self._fault = ""
            if digests is not None:
                self._take(digests)

    def _changed(self) -> Mapping[bytes, str] | None:
        state = _state(self._directory)
        if state == self._state:
            return None
        digests = read_digests(self._directory)
        self._state = state
        return digests

    def _take(self, digests: Mapping[bytes, str]) -> None:
        self._use(digests)
        tenants = len(set(digests.values()))
        logger.info("tenants known: %d, with %d keys", tenants, len(digests))


def read_digests(directory: Path) -> dict[bytes, str]:
    """Tenants' names by the digests of their keys.

    Raises ConfigError, which names file and line and never what stands there.
    """
    digests: dict[bytes, str] = {}
    for path in _files(directory):
        # The link's target is gone after the next change; people know the file by this name.
        shown = directory / path.name
        if not is_name(path.name):
            raise ConfigError(f"{str(shown)!a} is no name for a tenant.")
        for number, line in enumerate(_lines(path, shown), 1):
            digest = _digest(line, f"{shown}, line {number}")
            if digest and digests.setdefault(digest, path.name) != path.name:
                raise ConfigError(
                    f"{shown}, line {number}: {digests[digest]} has the same key, "
                    "which can be one tenant's only."
                )
    return digests


def _files(directory: Path) -> list[Path]:
    """The tenants' files. Behind the link all are of one age, also while they are changed."""
    link = directory / _LINK
    try:
        where = link.resolve(strict=True) if link.is_symlink() else directory
        return sorted(path for path in where.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise _unreadable(directory, error) from None


def _lines(path: Path, shown: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise _unreadable(shown, error) from None
    if len(raw) > _MAX_FILE_BYTES:
        raise ConfigError(f"{shown} has more than {_MAX_FILE_BYTES} bytes.")
    return raw.decode("utf-8", "replace").split("\n")


def _digest(line: str, place: str) -> bytes | None:
    text = line.partition("#")[0].strip()
    if not text:
        return None
    if not _DIGEST.fullmatch(text):
        raise ConfigError(
            f"{place} is not the SHA-256 digest of a key in hexadecimal (64 characters)."
        )
    digest = bytes.fromhex(text)
    if digest == _OF_NOTHING:
        raise ConfigError(f"{place} is the digest of an empty text, which is no key.")
    return digest


def _state(directory: Path) -> _State:
    """What changes when a file does: of the link when there is one, else of every file."""
    link = directory / _LINK
    watched = [link] if link.is_symlink() else [directory, *_files(directory)]
    try:
        return tuple(_fingerprint(path) for path in watched)
    except OSError as error:
        raise _unreadable(directory, error) from None


def _fingerprint(path: Path) -> tuple[str, int, int, int]:
    found = os.lstat(path) if path.name == _LINK else os.stat(path)
    return path.name, found.st_mtime_ns, found.st_ino, found.st_size


def _unreadable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{path} cannot be read: {error.strerror}.")
