"""Two engines, on a GPU each or both on one: started, waited for, ended."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

HERE: Final = Path(__file__).resolve().parent
HOST: Final = "127.0.0.1"
_PORTS: Final = {"kv_producer": (8100, 5600), "kv_consumer": (8200, 5650)}
LEASES_AFTER: Final = 100
"""The lease port, of P as of D, after the side channel's."""
_START_S: Final = 480.0
_STOP_S: Final = 10.0


@dataclass(frozen=True)
class Setup:
    """What differs between the pairs that are compared."""

    name: str
    block_size: int
    is_ours: bool = False
    is_packed: bool = False
    """One run of memory per block over all layers: what `enable_cross_layers_blocks` asks for."""
    extra: dict[str, Any] = field(default_factory=dict)

    def transfer_config(self, role: str, device: str) -> dict[str, Any]:
        config: dict[str, Any] = {
            "kv_connector": "NixlConnector",
            "kv_role": role,
            "kv_buffer_device": device,
            "kv_connector_extra_config": {
                "bidirectional_kv_xfer": True,
                "kv_recompute_threshold": 64,
                "decoder_kv_blocks_ttl": 480,
                **self.extra,
            },
        }
        if self.is_packed and not self.is_ours:
            config["kv_connector_extra_config"]["enable_cross_layers_blocks"] = "True"
        if self.is_ours:
            config["kv_connector"] = "DisaggPairConnector"
            config["kv_connector_module_path"] = "release026"
            if role == "kv_producer":
                config["kv_load_failure_policy"] = "recompute"
        return config

    def environment(self) -> dict[str, str]:
        # The second model runner of vLLM 0.26, its default, ignores the flag; the first heeds it.
        return {"VLLM_USE_V2_MODEL_RUNNER": "0", "PAIR_PACKED": "1"} if self.is_packed else {}


@dataclass(frozen=True)
class Machine:
    """Where it runs: the model, the memory for KV, and the log folder."""

    model: Path
    logs: Path
    python: str = sys.executable
    device: str = "cuda"
    gpus: int = 1
    kv_bytes: int = 22 * 1024**3
    args: tuple[str, ...] = ()
    role_args: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Come last, so that they overrule the others."""
    environment: dict[str, str] = field(default_factory=dict)

    def visible(self, role: str) -> dict[str, str]:
        """The role's own GPU first. UCX copies directly only between GPUs that both can see."""
        gpus = "0" if self.gpus == 1 else "0,1" if role == "kv_producer" else "1,0"
        return {"CUDA_VISIBLE_DEVICES": gpus} if self.device == "cuda" else {}


class Pair:
    """P and D of one setup.

    Both are started at once and import; they take the GPU when `open_gate` says that the pair
    before them is gone.
    """

    def __init__(self, setup: Setup, machine: Machine, number: int = 0) -> None:
        self.setup = setup
        # Of its own, since the pair before it still has its ports while this one imports.
        self._ports = {
            role: (port + 10 * number, side + 10 * number) for role, (port, side) in _PORTS.items()
        }
        self.prefill = f"http://{HOST}:{self._ports['kv_producer'][0]}"
        self.decode = f"http://{HOST}:{self._ports['kv_consumer'][0]}"
        self.lease_port = self._ports["kv_consumer"][1] + LEASES_AFTER
        self._gate = machine.logs / f"{setup.name}.gate"
        self._logs = {role: machine.logs / f"{setup.name}-{role}.log" for role in _PORTS}
        self._processes = [self._start(role, machine) for role in _PORTS]

    def _start(self, role: str, machine: Machine) -> subprocess.Popen[bytes]:
        port, side = self._ports[role]
        environment = {
            **os.environ,
            **machine.environment,
            **self.setup.environment(),
            **machine.visible(role),
            "PAIR_GATE": str(self._gate),
            "PYTHONPATH": f"{HERE}:{os.environ.get('PYTHONPATH', '')}",
            "VLLM_NIXL_SIDE_CHANNEL_HOST": HOST,
            "VLLM_NIXL_SIDE_CHANNEL_PORT": str(side),
            "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
        }
        command = [
            *(machine.python, str(HERE / "engine.py"), "serve", str(machine.model)),
            *("--served-model-name", "m", "--host", HOST, "--port", str(port)),
            *("--dtype", "bfloat16", "--enforce-eager", "--max-num-seqs", "8"),
            *("--block-size", str(self.setup.block_size), *machine.args),
            *("--kv-transfer-config", json.dumps(self.setup.transfer_config(role, machine.device))),
        ]
        if machine.device == "cuda":
            command += ["--kv-cache-memory-bytes", str(machine.kv_bytes)]
        command += machine.role_args.get(role, ())
        if role == "kv_producer":  # cold at every turn, as after eviction by other traffic
            command.append("--no-enable-prefix-caching")
        with self._logs[role].open("wb") as log:
            return subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def open_gate(self) -> None:
        self._gate.touch()

    def wait_until_healthy(self) -> float:
        """Seconds that it took from here on.

        Raises:
            RuntimeError: an engine ended or took too long.
        """
        started = time.monotonic()
        while not all(map(_is_healthy, (self.prefill, self.decode))):
            ended = [
                process.returncode for process in self._processes if process.poll() is not None
            ]
            if ended or time.monotonic() - started > _START_S:
                raise RuntimeError(f"{self.setup.name}: no pair, ended engines: {ended}")
            time.sleep(0.25)
        return time.monotonic() - started

    def log_lines(self, *fragments: str, last: int = 6) -> list[str]:
        found: list[str] = []
        for role, path in self._logs.items():
            lines = path.read_text(errors="replace").splitlines()
            found += [
                f"{role}: {line[-400:]}"
                for line in lines
                if any(part in line for part in fragments)
            ][-last:]
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            _signal(process, signal.SIGTERM)
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_S)
            _signal(process, signal.SIGKILL)  # what is left of its group
            process.wait()


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _is_healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False
