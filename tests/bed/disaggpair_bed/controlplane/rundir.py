"""The folder of one bed, and the lock that says whether the bed lives.

The supervisor holds a lock on `bed.lock` for its whole life and writes its process id into it.
The kernel drops the lock when the supervisor dies, so a lock that can be taken means that the
bed is gone, whatever the file says.
"""

import fcntl
import os
import shutil
from pathlib import Path
from typing import IO

from disaggpair_bed.controlplane.errors import RunDirError

_LOCK = "bed.lock"


class RunDir:
    """A folder that belongs to this process until `release`.

    Whatever a dead bed left in it is removed. The lock file stays, since removing it would let
    two processes hold locks on two files of that name.

    Raises:
        RunDirError: a live bed has it, or it holds things that no bed put there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._lock = self._take()
        for entry in self.path.iterdir():
            if entry.name == _LOCK:
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()

    def _take(self) -> IO[str]:
        lock = self.path / _LOCK
        if self.path.is_dir() and not lock.exists() and any(self.path.iterdir()):
            raise RunDirError(
                f"{self.path} is neither empty nor the folder of a bed: name another one"
            )
        self.path.mkdir(parents=True, exist_ok=True)
        file = lock.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise RunDirError(
                f"a bed is running in {self.path} (process {_read_pid(lock)}): stop it with "
                f"`disaggpair-bed down --run-dir {self.path}`, or name another folder"
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        return file

    def release(self) -> None:
        """Let another bed have the folder; its files stay for reading."""
        self._lock.close()


def live_supervisor(path: Path) -> int | None:
    """The process id of the supervisor of a bed, None if no bed lives in the folder."""
    lock = path / _LOCK
    try:
        file = lock.open("r")
    except FileNotFoundError:
        return None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _read_pid(lock)
    return None


def _read_pid(lock: Path) -> int | None:
    """None in the moment between taking the lock and writing the file."""
    text = lock.read_text().strip()
    return int(text) if text else None
