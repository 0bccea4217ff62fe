"""The routers to compare, each started as its documentation says, before one pair of engines."""

import http.client
import os
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

from disaggpair_bed.load import granting
from disaggpair_bed.processes import Process

_READY_S = 30.0


@dataclass(frozen=True, slots=True)
class Running:
    """A router that serves, or none: then the ports are P's and D's."""

    name: str
    ports: tuple[int, ...]
    session: int = 0
    """The session whose processes are the router's; 0 without one."""

    def cpu_s(self) -> float:
        """Processor seconds that its processes have used."""
        return sum(_cpu_s(pid) for pid in _session(self.session)) if self.session else 0.0

    def resident_mb(self) -> float:
        """Memory that its processes hold, in MB."""
        return sum(_resident(pid) for pid in _session(self.session)) / 1e6 if self.session else 0.0


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


@contextmanager
def engines(
    folder: Path, *flags: str, host: str = granting.HOST, lease: int = 0
) -> Iterator[tuple[int, int]]:
    """The stand-in; ports of P and D. Grants leases when it is given a port for their listener."""
    prefill, decode = free_ports(2)
    command = [sys.executable, "-m", "disaggpair_bed.load.engine", "--host", host]
    command += ["--prefill-port", str(prefill), "--decode-port", str(decode)]
    command += ["--lease-port", str(lease), *flags]
    process = Process("engines", command, folder / f"engines-{host}.log")
    with _running(process, decode, "/health", host):
        yield prefill, decode


def configuration(
    prefill: int, decode: Sequence[str], *, lease: int = 0, **fields: object
) -> dict[str, object]:
    """Our router's configuration: defaults, and leases when a port of theirs is given."""
    return {
        "host": granting.HOST,
        "metrics_port": 0,
        "endpoints": {
            "kind": "static",
            "prefill": [f"http://{granting.HOST}:{prefill}"],
            "decode": list(decode),
        },
        "kv": {"handle_in_stream": True, **({"leases": {"port": lease}} if lease else {})},
        **fields,
    }


@contextmanager
def ours(
    folder: Path,
    prefill: int,
    decode: Sequence[str],
    *,
    lease: int = 0,
    name: str = "ours",
    **fields: object,
) -> Iterator[Running]:
    """Our router; `decode` are base URLs."""
    (port,) = free_ports(1)
    config = configuration(prefill, decode, lease=lease, port=port, **fields)
    path = folder / f"{name}.json"
    path.write_bytes(orjson.dumps(config))
    command: list[str | Path] = [
        Path(sys.executable).parent / "disaggpair",
        "router",
        "--config",
        path,
    ]
    environment = {"DISAGGPAIR_LEASE_KEY": granting.KEY}
    with _running(_process(name, command, folder, environment), port, "/readyz") as session:
        yield Running(name, (port,), session)


@contextmanager
def vllm_router(folder: Path, program: Path, prefill: int, decode: int) -> Iterator[Running]:
    """PyPI's vllm-router in its one-way mode for prefill and decode, NIXL, its default policy."""
    port, metrics = free_ports(2)
    command: list[str | Path] = [
        program,
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--prometheus-port",
        str(metrics),
        "--vllm-pd-disaggregation",
        "--kv-connector",
        "nixl",
        "--prefill",
        f"http://127.0.0.1:{prefill}",
        "--decode",
        f"http://127.0.0.1:{decode}",
    ]
    with _running(_process("vllm-router", command, folder), port, "/readiness") as session:
        yield Running("vllm-router", (port,), session)


@contextmanager
def example_proxy(
    folder: Path, python: Path, source: Path, prefill: int, decode: int
) -> Iterator[Running]:
    """vLLM's example proxy for many turns."""
    (port,) = free_ports(1)
    command: list[str | Path] = [python, source, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--prefiller-host", "127.0.0.1", "--prefiller-port", str(prefill)]
    command += ["--decoder-host", "127.0.0.1", "--decoder-port", str(decode)]
    with _running(_process("example", command, folder), port, "/health") as session:
        yield Running("example", (port,), session)


def _process(
    name: str,
    command: Sequence[str | Path],
    folder: Path,
    environment: dict[str, str] | None = None,
) -> Process:
    # What it says of every turn costs it a write, as in a pod; the file is not kept.
    variables = [f"{key}={value}" for key, value in (environment or {}).items()]
    return Process(name, ["/usr/bin/env", *variables, *command], folder / f"{name}.log")


@contextmanager
def _running(process: Process, port: int, path: str, host: str = granting.HOST) -> Iterator[int]:
    process.start()
    try:
        _wait_ready(process, host, port, path)
        assert process.pid is not None
        yield process.pid
    finally:
        process.stop()


def _wait_ready(process: Process, host: str, port: int, path: str) -> None:
    end = time.monotonic() + _READY_S
    while True:
        process.check()
        if _answers(host, port, path):
            return
        if time.monotonic() > end:
            raise RuntimeError(f"{process.name} is not ready; its log is {process.log}")
        time.sleep(0.05)


def _answers(host: str, port: int, path: str) -> bool:
    connection = http.client.HTTPConnection(host, port, timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _session(leader: int) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.getsid(int(name)) == leader:
                    found.append(int(name))
            except ProcessLookupError:
                continue
    return found


def _cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
