"""A pair of real engines and our router before it, each in processes of its own."""

import asyncio
import itertools
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import orjson

from disaggpair_bed.cpu.engine import SIDE_CHANNEL_PORT, START_TIMEOUT_S, Engine
from disaggpair_bed.cpu.install import Engines
from disaggpair_bed.cpu.leases import LEASE_ENVIRONMENT
from disaggpair_bed.cpu.options import NO_PREFIX_CACHING
from disaggpair_bed.cpu.pair import Pair, PairOptions, RoleOptions
from disaggpair_bed.cpu.usage import kill_session
from disaggpair_bed.load.routers import free_ports
from disaggpair_bed.processes import Process
from disaggpair_connector import contract

TTL_S: Final = 20.0
PREFILL_LEASE_S: Final = 12.0
READ_S: Final = 6.0
DECODE_BLOCKS: Final = 200
"""Of 32 tokens, for conversations of up to 63: so few that D takes leases back."""
PREFILL_BLOCKS: Final = 300

TIMEOUTS: Final = {
    "connect_s": 1.0,
    "prefill_s": 10.0,
    "decode_first_byte_s": 15.0,
    "decode_idle_s": 8.0,
    "probe_s": 0.5,
    "canary_s": 3.0,
    "canary_limit_s": 5.0,
    "drain_s": 1.0,
}
DEADLINE_S: Final = 75.0
"""More than two P legs, two D legs, and what a busy machine adds."""

ENDED_BY_UCX: Final = "Fatal: unexpected error: Endpoint timeout"
"""UCX over TCP ends a process whose answer to a read finds its peer gone, if it stood still
meanwhile; vLLM then ends the engine. See the connector's limits."""

_POLL_S: Final = 0.25
_READY_S: Final = 30.0


class RouterProcess:
    """`disaggpair router` with leases, before one P and one D.

    Args:
        pair: the engines.
        folder: for its configuration and its log.
        direct: whether D may compute a turn's new tokens itself.
    """

    def __init__(self, pair: Pair, folder: Path, *, direct: bool) -> None:
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        config = {
            "host": "127.0.0.1",
            "port": port,
            "metrics_port": 0,
            "endpoints": {
                "kind": "static",
                "prefill": [pair.prefill.url],
                "decode": [pair.decode.url],
            },
            "timeouts": TIMEOUTS,
            "way": {"direct": direct},
            "kv": {
                "handle_in_stream": False,
                "pull_pause_s": 1.0,
                "leases": {"port": SIDE_CHANNEL_PORT + contract.LEASE_PORT_OFFSET},
            },
        }
        path = folder / "router.json"
        path.write_bytes(orjson.dumps(config))
        variables = [f"{name}={value}" for name, value in LEASE_ENVIRONMENT.items()]
        program = Path(sys.executable).parent / "disaggpair"
        command: list[str | Path] = ["/usr/bin/env", *variables, program, "router"]
        command += ["--config", path]
        self.log = folder / "router.log"
        self._process = Process("router", command, self.log)

    def start(self) -> None:
        """Start it; it serves some time later."""
        self._process.start()

    def kill(self) -> None:
        """End it at once."""
        if (leader := self._process.pid) is not None:
            kill_session(leader)
            self._process.stop()

    def stop(self) -> None:
        """End it."""
        self._process.stop()

    async def ready(self, session: aiohttp.ClientSession) -> None:
        """Wait until it serves.

        Raises:
            ProcessDiedError: it ended.
            TimeoutError: it does not.
        """
        async with asyncio.timeout(_READY_S):
            for _ in itertools.count():
                self._process.check()
                try:
                    async with session.get(f"{self.url}/readyz") as response:
                        if response.status == 200:
                            return
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(_POLL_S)


@dataclass
class RealBench:
    """What clients talk to."""

    pair: Pair
    router: RouterProcess

    @property
    def engines(self) -> tuple[Engine, Engine]:
        """P and D."""
        return self.pair.prefill, self.pair.decode


def options(seed: int) -> PairOptions:
    """The engines of a run; with an odd seed P has no cache of its own, so that more is read."""
    # No prompt is cut into steps: two computations of it are then equal, see `distribution`.
    whole = ("--max-num-batched-tokens", "8192")
    extra: dict[str, Any] = {
        contract.EXTRA_DECODE_TTL: TTL_S,
        contract.EXTRA_PREFILL_LEASE: PREFILL_LEASE_S,
        contract.EXTRA_LEASE_READ: READ_S,
        contract.EXTRA_LEASE_CLAIM: READ_S,
    }
    environment = {**LEASE_ENVIRONMENT, "VLLM_SERVER_DEV_MODE": "1"}
    forgets = (NO_PREFIX_CACHING,) if seed % 2 else ()
    return PairOptions(
        prefill=RoleOptions(
            args=(*whole, "--num-gpu-blocks-override", str(PREFILL_BLOCKS), *forgets),
            environment=environment,
            extra=extra,
        ),
        decode=RoleOptions(
            args=(*whole, "--num-gpu-blocks-override", str(DECODE_BLOCKS)),
            environment=environment,
            extra=extra,
        ),
    )


@contextmanager
def real_bench(engines: Engines, model: Path, folder: Path, seed: int) -> Iterator[RealBench]:
    """Healthy engines, and a router that was started."""
    with Pair(engines, model, folder, options(seed)) as pair:
        router = RouterProcess(pair, folder, direct=seed % 2 == 0)
        router.start()
        try:
            yield RealBench(pair, router)
        finally:
            router.stop()


async def healthy(engine: Engine) -> None:
    """Wait until an engine serves that was started, while others go on.

    Raises:
        TimeoutError: it does not.
    """
    end = time.monotonic() + START_TIMEOUT_S
    while not await asyncio.to_thread(engine.is_healthy):
        if time.monotonic() > end or not engine.running:
            raise TimeoutError(f"{engine.url} does not serve; its log is {engine.log}")
        await asyncio.sleep(_POLL_S)


async def restart(engine: Engine) -> None:
    """End an engine at once, start it again and wait until it serves, while others go on."""
    await asyncio.to_thread(engine.kill)
    engine.start()  # in the main thread, with which it ends
    await healthy(engine)
