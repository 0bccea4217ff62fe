"""Where emptyDir volumes of medium Memory lie: a directory on a tmpfs that every Linux has.

The directory is locked while its process lives, so that the next one can tell and remove what a
killed one left: files there keep memory of the machine.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PREFIX = "disaggpair-bed-"
SHM = Path("/dev/shm")


@contextmanager
def memory_root(shm: Path = SHM) -> Iterator[Path]:
    """A fresh directory for this process, gone after the block."""
    base = shm if shm.is_dir() else Path(tempfile.gettempdir())
    for path in base.glob(f"{_PREFIX}*"):
        _remove_if_unlocked(path)
    path = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}", dir=base))
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Only now under a name that others look at.
        path = path.rename(base / path.name.removeprefix("."))
        path.chmod(0o755)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _remove_if_unlocked(path: Path) -> None:
    try:
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    except BlockingIOError:
        return
    finally:
        os.close(lock)
