"""A pair of CPU engines as plain processes, without a cluster around them.

    with Pair(engines, model, config, folder) as pair:
        pair.prefill.url, pair.decode.url

Each engine has a loopback address of its own, as its pod would have.
"""

import json
import os
import shutil
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

from disaggpair_bed.controlplane.addresses import LoopbackPrefix
from disaggpair_bed.controlplane.errors import StartError
from disaggpair_bed.cpu.image import engine_environment
from disaggpair_bed.cpu.install import Engines
from disaggpair_bed.cpu.model import SERVED_NAME
from disaggpair_bed.processes import Process, tail
from disaggpair_connector import contract

RoleName = Literal["prefill", "decode"]

HTTP_PORT: Final = 8000
SIDE_CHANNEL_PORT: Final = 5600
BLOCK_SIZE: Final = 32

START_TIMEOUT_S: Final = 300.0
"""Both start in 45 s on two idle cores; imports are all of it, so others slow it down."""

_POLL_S = 0.5
_PATIENCE_S = 20.0

# P forgets every prompt, so that what it does not compute came from D.
_OF_ROLE: Final[Mapping[RoleName, list[str]]] = {
    "prefill": ["--no-enable-prefix-caching"],
    "decode": [],
}
_KV_ROLE: Final[Mapping[RoleName, str]] = {
    "prefill": contract.PREFILL_ROLE,
    "decode": contract.DECODE_ROLE,
}


def kv_transfer_config(role: RoleName, **extra: Any) -> dict[str, Any]:
    """A KV-transfer configuration over TCP with our connector, as the operator renders it.

    Args:
        role: the side that gets it.
        extra: laid over `kv_connector_extra_config`.
    """
    return {
        "kv_connector": contract.CONNECTOR_CLASS,
        "kv_connector_module_path": contract.CONNECTOR_MODULE,
        "kv_role": _KV_ROLE[role],
        "kv_load_failure_policy": "fail",
        "kv_connector_extra_config": {
            contract.EXTRA_BACKENDS: ["UCX"],
            contract.EXTRA_BIDIRECTIONAL: True,
            contract.EXTRA_RECOMPUTE_THRESHOLD: 64,
            contract.EXTRA_DECODE_TTL: 480,
            contract.EXTRA_PREFILL_LEASE: 30,
            **extra,
        },
    }


class Engine:
    """One `vllm serve` on a loopback address.

    Attributes:
        url: where it serves.
        log: all that it prints.
    """

    def __init__(
        self,
        engines: Engines,
        model: Path,
        role: RoleName,
        address: str,
        config: Mapping[str, Any],
        folder: Path,
    ) -> None:
        self.url = f"http://{address}:{HTTP_PORT}"
        self.log = folder / f"{role}.log"
        # vLLM binds sockets in it, whose paths may have 107 bytes: pytest's folders are too deep.
        self._temporary = Path(tempfile.mkdtemp(prefix="disaggpair-"))
        environment = {
            **engine_environment(),
            "PATH": f"{engines.programs}{os.pathsep}{os.environ['PATH']}",
            "TMPDIR": str(self._temporary),
            contract.SIDE_CHANNEL_HOST_ENV: address,
            contract.SIDE_CHANNEL_PORT_ENV: str(SIDE_CHANNEL_PORT),
        }
        command = [
            *("/usr/bin/env", *(f"{name}={value}" for name, value in environment.items())),
            *("vllm", "serve", str(model), "--served-model-name", SERVED_NAME),
            *("--host", address, "--port", str(HTTP_PORT), "--block-size", str(BLOCK_SIZE)),
            *("--dtype", "bfloat16", "--enforce-eager", "--max-model-len", "4096"),
            *("--max-num-seqs", "8", "--kv-transfer-config", json.dumps(config)),
            *_OF_ROLE[role],
        ]
        self._process = Process(f"{role} engine", command, self.log, patience_s=_PATIENCE_S)

    def start(self) -> None:
        """Start it; it serves some time later."""
        self._process.start()

    def wait_until_healthy(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Block until it serves.

        Raises:
            ProcessDiedError: it ended, with its last log lines.
            StartError: it did neither in time.
        """
        deadline = time.monotonic() + timeout_s
        while not self._is_healthy():
            self._process.check()
            if time.monotonic() > deadline:
                raise StartError(
                    f"{self.url} is not healthy after {timeout_s:.0f} s:\n{tail(self.log)}"
                )
            time.sleep(_POLL_S)

    def stop(self) -> None:
        """End it and drop its temporary files."""
        self._process.stop()
        shutil.rmtree(self._temporary, ignore_errors=True)

    def _is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5):
                return True
        except (urllib.error.URLError, TimeoutError):
            return False


class Pair:
    """Both engines, started together: healthy inside the `with`, gone after it.

    Args:
        engines: the environment.
        model: the folder of the model.
        folder: where the logs go.
    """

    def __init__(self, engines: Engines, model: Path, folder: Path) -> None:
        self._prefix = LoopbackPrefix()
        made = [
            Engine(engines, model, role, address, kv_transfer_config(role), folder)
            for role, address in zip(_OF_ROLE, addresses(self._prefix), strict=True)
        ]
        self.prefill, self.decode = made

    def __enter__(self) -> Self:
        try:
            self.prefill.start()
            self.decode.start()
            self.prefill.wait_until_healthy()
            self.decode.wait_until_healthy()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        self.decode.stop()
        self.prefill.stop()
        self._prefix.release()


def addresses(prefix: LoopbackPrefix) -> tuple[str, str]:
    """An address for P and one for D, as on two nodes."""
    return f"{prefix.text}.1.1", f"{prefix.text}.2.1"
