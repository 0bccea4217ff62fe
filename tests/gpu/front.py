"""Our router as a process in front of a pair: its configuration, metrics and lines."""

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol, Self

_START_S: Final = 30.0
_HOST: Final = "127.0.0.1"
_NOBODY: Final = f"http://{_HOST}:9"


class Engines(Protocol):
    """A pair that runs."""

    prefill: str
    decode: str
    lease_port: int


class Router:
    """One router with leases of D.

    Args:
        name: of its files.
        engines: the pair.
        folder: for its files.
        port: of its API; the metrics' is the next one.
        alone: D serves all turns of it alone.
        fields: more of its configuration, such as `way`.
    """

    def __init__(
        self,
        name: str,
        engines: Engines,
        folder: Path,
        port: int,
        *,
        alone: bool = False,
        **fields: Any,
    ) -> None:
        self.url = f"http://{_HOST}:{port}"
        self._metrics = f"http://{_HOST}:{port + 1}/metrics"
        self._log = folder / f"{name}.log"
        config = {
            "endpoints": {
                "kind": "static",
                "prefill": [_NOBODY if alone else engines.prefill],
                "decode": [engines.decode],
            },
            "host": _HOST,
            "port": port,
            "metrics_port": port + 1,
            "kv": {"leases": {"port": engines.lease_port}},
            **fields,
        }
        path = folder / f"{name}.json"
        path.write_text(json.dumps(config))
        command = [sys.executable, "-m", "disaggpair_router", "--config", str(path)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--log-format", "json"], env=dict(os.environ), stdout=log, stderr=log
            )

    def __enter__(self) -> Self:
        deadline = time.monotonic() + _START_S
        while not self._follows_leases():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise RuntimeError(f"no router: {self._log.read_text()[-2000:]}")
            time.sleep(0.1)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._process.kill()
        self._process.wait()

    def _follows_leases(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=2):
                return self.samples("lease_listeners", "followed") >= 1
        except (urllib.error.URLError, OSError):
            return False

    def samples(self, name: str, label: str = "") -> float:
        """Sum of a series over the labels that hold a text."""
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in self._lines()
            if line.startswith(f"disaggpair_router_{name}") and label in line
        )

    def named(self, name: str) -> dict[str, float]:
        """The samples of a series above 0, by their labels."""
        found = {}
        for line in self._lines():
            if line.startswith(f"disaggpair_router_{name}{{"):
                labels, value = line.removeprefix(f"disaggpair_router_{name}").rsplit(" ", 1)
                if float(value):
                    found[labels] = float(value)
        return found

    def _lines(self) -> list[str]:
        with urllib.request.urlopen(self._metrics, timeout=5) as response:
            text: str = response.read().decode()
        return text.splitlines()

    def turns(self) -> Iterator[dict[str, Any]]:
        """The lines of its turns so far."""
        for line in self._log.read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                fields = json.loads(line)
                if isinstance(fields, dict) and "way" in fields:
                    yield fields

    def complaints(self) -> list[str]:
        """Its other lines of level warning and above, and what is no line of its own."""
        lines = self._log.read_text(errors="replace").splitlines()
        return [line for line in lines if '"way"' not in line and '"info"' not in line][:20]
