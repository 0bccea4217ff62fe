"""Child processes that end with their supervisor, and a word on each one that ends before.

A `Process` is tied to the thread that starts it: when that thread or the whole supervisor dies,
even by SIGKILL, the kernel kills the process. It lives in a session of its own, so that a
Ctrl-C at the terminal reaches the supervisor alone, which then stops its children in order.
"""

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from disaggpair_bed.controlplane import tether
from disaggpair_bed.controlplane.errors import ProcessDiedError

_TAIL_LINES = 15


class Process:
    """One child with its log file.

    Attributes:
        name: what a person calls it.
        log: file with all that it prints.
        patience_s: how long it may take to stop before it is killed.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        *,
        patience_s: float = 5.0,
    ) -> None:
        self.name = name
        self.log = log
        self._command = [str(part) for part in command]
        self.patience_s = patience_s
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, once, from the main thread: other threads may end before the bed does."""
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError(f"start {self.name} from the main thread: it dies with its starter")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        tied = [sys.executable, "-I", "-S", tether.__file__, str(os.getpid()), *self._command]
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                tied,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int | None:
        """Its process id, None before it is started."""
        return self._child.pid if self._child else None

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._child is not None and self._child.poll() is None

    def check(self) -> None:
        """Raise ProcessDiedError, with its last log lines, if it ended by itself."""
        if self._child is not None and (code := self._child.poll()) is not None:
            raise ProcessDiedError(
                f"{self.name} ended by itself with {describe_exit(code)}; the end of {self.log}:\n"
                f"{tail(self.log)}"
            )

    def stop(self) -> None:
        """End it: SIGTERM, and SIGKILL when its patience is over. Returns when it has ended."""
        if self._child is None:
            return
        self._child.terminate()
        try:
            self._child.wait(self.patience_s)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


class ProcessGroup:
    """Processes that start one after the other and stop in the reverse order."""

    def __init__(self) -> None:
        self._processes: list[Process] = []

    def __iter__(self) -> Iterator[Process]:
        return iter(tuple(self._processes))

    def start(self, process: Process) -> Process:
        """Start a process as the last one."""
        self._processes.append(process)
        process.start()
        return process

    def stop(self) -> None:
        """End all of them, the last one first, each one before the next is asked."""
        while self._processes:
            self._processes[-1].stop()
            self._processes.pop()

    def check(self) -> None:
        """Raise ProcessDiedError for the first one that ended by itself."""
        for process in self._processes:
            process.check()

    def wait(self) -> None:
        """Block until one of them ends by itself, and raise; signals interrupt."""
        poller = select.poll()
        descriptors = []
        try:
            for process in self._processes:
                process.check()
                assert process.pid is not None
                descriptors.append(os.pidfd_open(process.pid))
                poller.register(descriptors[-1], select.POLLIN)
            poller.poll()
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        self.check()


def describe_exit(code: int) -> str:
    """A return code of subprocess in words."""
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"status {code}"


def tail(log: Path, lines: int = _TAIL_LINES) -> str:
    """The last lines of a log file, indented."""
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 64 * 1024))
        text = file.read().decode(errors="replace")
    return "\n".join(f"    {line}" for line in text.splitlines()[-lines:])
