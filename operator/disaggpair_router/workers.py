"""Several processes that serve one port, each a whole router, for more turns than one core takes.

The kernel spreads connections over them. What they share is in D: with leases each worker knows
every conversation, as each replica does. The first process only starts them and passes on that
they have to end; a worker that ends by itself ends them all, and whoever runs the router starts it
anew.
"""

import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn


@dataclass(frozen=True, slots=True)
class Worker:
    """One of several processes."""

    number: int
    count: int
    folder: Path
    """Where the workers find each other's metrics."""
    lifeline: int
    """A descriptor that becomes readable when the first process is gone."""

    def socket(self, number: int) -> str:
        """Path of the socket at which a worker tells its metrics."""
        return str(self.folder / f"{number}.sock")

    def speaks_first(self) -> bool:
        """Whether no other worker has asked this before: what all find wrong is said once."""
        try:
            (self.folder / "said").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


def run_workers(count: int, work: Callable[[Worker], int]) -> int:
    """Run `work` in so many processes until a signal; the status of the first that failed, or 0.

    To be called before any thread or event loop is there.
    """
    with tempfile.TemporaryDirectory(prefix="disaggpair-router-") as folder:
        lifeline, ours = os.pipe()
        pids = []
        for number in range(count):
            pid = os.fork()
            if pid == 0:
                os.close(ours)
                _end(work, Worker(number, count, Path(folder), lifeline))
            pids.append(pid)
        try:
            return _supervise(set(pids))
        finally:
            os.close(lifeline)
            os.close(ours)


def _end(work: Callable[[Worker], int], worker: Worker) -> NoReturn:
    """Do a worker's work and leave, without what the first process has to clean up."""
    status = 1
    try:
        status = work(worker)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _supervise(pids: set[int]) -> int:
    is_ending = False

    def end(*_: object) -> None:
        nonlocal is_ending
        is_ending = True
        for pid in pids:
            os.kill(pid, signal.SIGTERM)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    result = 0
    try:
        while pids:
            pid, status = os.waitpid(-1, 0)
            if pid not in pids:
                continue
            pids.discard(pid)
            code = os.waitstatus_to_exitcode(status)
            result = result or (abs(code) if code or is_ending else 1)
            if not is_ending:
                end()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return result
