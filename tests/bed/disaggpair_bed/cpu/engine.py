"""One `vllm serve` on the CPU as a plain process: started, killed, started again."""

import json
import os
import shutil
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from disaggpair_bed.controlplane.errors import StartError
from disaggpair_bed.cpu.image import engine_environment
from disaggpair_bed.cpu.install import Engines
from disaggpair_bed.cpu.model import SERVED_NAME
from disaggpair_bed.cpu.options import BLOCK_SIZE, RoleName, RoleOptions
from disaggpair_bed.cpu.usage import Usage, kill_session, usage
from disaggpair_bed.processes import Process, tail
from disaggpair_connector import contract

HTTP_PORT: Final = 8000
SIDE_CHANNEL_PORT: Final = 5600

START_TIMEOUT_S: Final = 600.0
"""Both start in 45 s on two idle cores; imports are all of it, so others slow it down."""

_POLL_S = 0.5
_PATIENCE_S = 20.0


class Engine:
    """One `vllm serve` on a loopback address.

    Attributes:
        role: what it is in the pair.
        address: where it serves and where its side channel is.
        url: its HTTP API.
        log: all that it prints, over all its starts.
    """

    def __init__(
        self,
        engines: Engines,
        model: Path,
        role: RoleName,
        address: str,
        config: Mapping[str, Any],
        folder: Path,
        *,
        options: RoleOptions | None = None,
        block_size: int = BLOCK_SIZE,
        calm: bool = True,
    ) -> None:
        options = options or RoleOptions()
        self.role = role
        self.address = address
        self.url = f"http://{address}:{HTTP_PORT}"
        self.log = folder / f"{role}.log"
        # vLLM binds sockets in it, whose paths may have 107 bytes: pytest's folders are too deep.
        self._temporary = Path(tempfile.mkdtemp(prefix="disaggpair-"))
        environment = {
            **engine_environment(calm=calm),
            "PATH": f"{engines.programs}{os.pathsep}{os.environ['PATH']}",
            "TMPDIR": str(self._temporary),
            contract.SIDE_CHANNEL_HOST_ENV: address,
            contract.SIDE_CHANNEL_PORT_ENV: str(SIDE_CHANNEL_PORT),
            **options.environment,
        }
        command = [
            *("/usr/bin/env", *(f"{name}={value}" for name, value in environment.items())),
            *("vllm", "serve", str(model), "--served-model-name", SERVED_NAME),
            *("--host", address, "--port", str(HTTP_PORT), "--block-size", str(block_size)),
            *("--dtype", "bfloat16", "--enforce-eager", "--max-model-len", "4096"),
            *("--max-num-seqs", "8", "--kv-transfer-config", json.dumps(config)),
            *options.args,
        ]
        self._process = Process(f"{role} engine", command, self.log, patience_s=_PATIENCE_S)

    @property
    def running(self) -> bool:
        """Whether its first process was started and has not ended."""
        return self._process.running

    def start(self) -> None:
        """Start it; it serves some time later. After its end it may be started again."""
        self._process.start()

    def wait_until_healthy(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Block until it serves.

        Raises:
            ProcessDiedError: it ended, with its last log lines.
            StartError: it did neither in time.
        """
        deadline = time.monotonic() + timeout_s
        while not self.is_healthy():
            self._process.check()
            if time.monotonic() > deadline:
                raise StartError(
                    f"{self.url} is not healthy after {timeout_s:.0f} s:\n{tail(self.log)}"
                )
            time.sleep(_POLL_S)

    def is_healthy(self) -> bool:
        """Whether it says that it serves and its engine core lives."""
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def kill(self) -> None:
        """End all its processes at once with SIGKILL, as a power cut does."""
        if (leader := self._process.pid) is not None:
            kill_session(leader)
            self._process.stop()

    def restart(self) -> None:
        """End it at once if it runs, start it again and wait until it serves."""
        self.kill()
        self.start()
        self.wait_until_healthy()

    def usage(self) -> list[Usage]:
        """What each of its processes has taken of the machine since its start."""
        leader = self._process.pid
        return usage(leader) if leader is not None else []

    def stop(self) -> None:
        """End it and drop its temporary files."""
        self._process.stop()
        self.kill()
        shutil.rmtree(self._temporary, ignore_errors=True)
