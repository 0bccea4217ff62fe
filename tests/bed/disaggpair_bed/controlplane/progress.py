"""Run `go build` and say how far it is.

A cold build takes minutes: it fetches 0.75 GB of modules, compiles about 3000 packages and
links. `go list -deps` prints the number of packages and `go build -v` the name of each one that
it compiles, so a person can see that it goes on and when it ends.
"""

import os
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from disaggpair_bed.controlplane.errors import BuildError

Say = Callable[[str], None]
"""Shows one line to a person."""

INTERVAL_S = 10.0
"""Time between two lines of progress."""

_KEPT_LINES = 20


class Counter:
    """What go printed so far; written by a reader thread, read by the one that waits."""

    def __init__(self, total: int | None = None) -> None:
        self.packages = 0
        self.last: deque[str] = deque(maxlen=_KEPT_LINES)
        self._total = total

    def read(self, lines: Iterable[str]) -> None:
        """Take lines until the stream ends; all but go's own messages name a package."""
        for line in map(str.rstrip, lines):
            self.last.append(line)
            self.packages += not line.startswith("go: ")

    def __str__(self) -> str:
        if not self.last:
            return "starting"
        last = self.last[-1]
        if self._total is None or last.startswith("go: "):
            return last
        return f"{self.packages} of at most {self._total} packages compiled, now {last}"


def compile_module(go: str, source: Path, arguments: Sequence[str], say: Say) -> None:
    """Run `go build` in a module.

    Raises:
        BuildError: go failed; the message ends with its last lines.
    """
    say("control plane: compiling it (once; takes minutes when go's caches are cold)")
    total = _run([go, "list", "-deps", "."], source, Counter(), say).packages
    _run([go, "build", "-v", *arguments, "."], source, Counter(total), say)


def go_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The caller's settings of proxies and caches, without those that change the binary."""
    fixed = {"CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off", "GOTOOLCHAIN": "local"}
    return {**environment, **fixed}


def _run(command: Sequence[str], source: Path, counter: Counter, say: Say) -> Counter:
    started = time.monotonic()
    with subprocess.Popen(
        command,
        cwd=source,
        env=go_environment(os.environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        reader = threading.Thread(target=counter.read, args=(process.stdout,))
        reader.start()
        try:
            while not _ended(process):
                say(f"control plane: {time.monotonic() - started:.0f} s, {counter}")
        except BaseException:
            process.terminate()
            raise
        finally:
            reader.join()
    if process.returncode != 0:
        raise BuildError("\n".join([f"{' '.join(command[:2])} failed:", *counter.last]))
    return counter


def _ended(process: "subprocess.Popen[str]") -> bool:
    try:
        process.wait(INTERVAL_S)
    except subprocess.TimeoutExpired:
        return False
    return True
