"""An engine with its HTTP server: started and stopped in this process."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any, Literal

import orjson
from aiohttp import web

from disaggpair_bed.simengine import app
from disaggpair_bed.simengine.commandline import parse_command_line
from disaggpair_bed.simengine.engine import Engine
from disaggpair_bed.simengine.faults import Faults
from disaggpair_bed.simengine.options import EngineOptions, Ports
from disaggpair_bed.simengine.oracle import Oracle
from disaggpair_bed.simengine.ranks import Ranks
from disaggpair_bed.simengine.recorder import Recorder
from disaggpair_connector import contract

_ABORT_WAIT_S = 5.0


class RunningEngine:
    """One engine and its server."""

    def __init__(self, options: EngineOptions) -> None:
        self.faults = Faults()
        self.recorder = Recorder(enabled=options.control)
        self.former: list[Oracle] = []
        """Records of the engines before a `restart`."""
        self.findings: list[str] = []
        """What was wrong when an engine was stopped; empty behind a correct router."""
        self._begin(options)

    def _begin(self, options: EngineOptions, ports: Sequence[Ports] | None = None) -> None:
        self.options = options
        self.ranks = Ranks(options, self.faults, ports)
        self._runner = web.AppRunner(
            app.build(self.ranks, self.faults, self.recorder),
            handler_cancellation=True,
            access_log=None,
            shutdown_timeout=_ABORT_WAIT_S,
        )
        self._site: web.TCPSite | None = None
        self._watch: asyncio.Task[None] | None = None
        self._looked = False
        self.port = 0

    @property
    def engine(self) -> Engine:
        """The first rank, which is the only one without data parallelism."""
        return self.ranks.engines[0]

    @property
    def url(self) -> str:
        """Base URL, such as `http://127.0.0.1:40001`."""
        return _url(self.options.host or "127.0.0.1", self.port)

    @property
    def lease_urls(self) -> tuple[str, ...]:
        """Base URLs of the ranks' lease listeners; none without our connector."""
        ports = [engine.ports.lease for engine in self.ranks.engines]
        return tuple(_url(self.options.side_channel_host, port) for port in ports if port)

    @property
    def oracles(self) -> tuple[Oracle, ...]:
        """Records of all ranks, also of those before a restart."""
        return (*self.former, *(engine.oracle for engine in self.ranks.engines))

    @property
    def closed(self) -> bool:
        """Whether the server is gone, after `stop` or the core's death."""
        return self._watch is not None and self._watch.done()

    async def start(self) -> None:
        """Load, as it were, the model, then listen: until then connections are refused."""
        await asyncio.sleep(self.options.costs.startup_s)
        await self.ranks.start()
        await self._runner.setup()
        self._site = web.TCPSite(self._runner, self.options.host, self.options.port)
        await self._site.start()
        self.port = self._runner.addresses[0][1]
        self._watch = asyncio.create_task(self._close_when_dead())

    async def stop(self, timeout_s: float = 0.0) -> None:
        """Take no more connections, wait for running requests, abort the rest.

        As in vLLM, blocks that are only pinned count as running requests.
        """
        if self._watch is None:
            return
        self._look()
        self.faults.thaw()
        if not self.ranks.died.is_set():
            if self._site is not None:
                await self._site.stop()
            if timeout_s > 0:
                await self.ranks.idle(timeout_s)
            await self.ranks.stop()
        await self._watch

    async def restart(self) -> None:
        """Stop at once and begin anew at the same addresses: other ids, no KV, no lease."""
        await self.stop()
        self.former += [engine.oracle for engine in self.ranks.engines]
        ports = [engine.ports for engine in self.ranks.engines]
        self._begin(replace(self.options, port=self.port), ports)
        await self.start()

    def _look(self) -> None:
        """Find faults once, before a stop spoils the traces."""
        if not self._looked:
            self._looked = True
            self.findings += [line for one in self.ranks.engines for line in one.findings()]

    async def _close_when_dead(self) -> None:
        """A dead core takes the API server with it, once what was in flight is answered."""
        await self.ranks.died.wait()
        await self._runner.cleanup()
        await self.ranks.stop()


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


_watching: list[list[RunningEngine]] = []


@contextmanager
def watched_engines() -> Iterator[list[RunningEngine]]:
    """The engines that `running_engine` begins meanwhile; ask for their `findings` afterwards."""
    begun: list[RunningEngine] = []
    _watching.append(begun)
    try:
        yield begun
    finally:
        _watching.remove(begun)


@asynccontextmanager
async def running_engine(
    role: Literal["prefill", "decode", "both"] = "both",
    *flags: str,
    model: str = "toy",
    release: str = "0.33.0",
    control: bool = True,
    connector: Literal["DisaggPair", "Nixl"] = "Nixl",
    lease_key: str = "",
    bidirectional: bool = True,
    extra: dict[str, Any] | None = None,
    transfer: dict[str, Any] | None = None,
    **changes: Any,
) -> AsyncIterator[RunningEngine]:
    """An engine on free loopback ports.

    `flags` are those of the command line, `extra` goes into `kv_connector_extra_config`,
    `transfer` into the transfer configuration itself, `changes` replace fields of EngineOptions.
    The oracle records and /sim exists unless `control` is False. With connector DisaggPair a P
    recomputes what it cannot read, as the operator has it.
    """
    roles = {
        "prefill": contract.PREFILL_ROLE,
        "decode": contract.DECODE_ROLE,
        "both": contract.LEGACY_ROLE,
    }
    ours = {
        "kv_connector": contract.CONNECTOR_CLASS,
        "kv_connector_module_path": contract.CONNECTOR_MODULE,
        "kv_load_failure_policy": "recompute" if role == "prefill" else "fail",
    }
    config = {
        "kv_connector": contract.NIXL_CONNECTOR_CLASS,
        **(ours if connector == "DisaggPair" else {}),
        "kv_role": roles[role],
        "kv_connector_extra_config": {
            contract.EXTRA_BIDIRECTIONAL: bidirectional,
            **(extra or {}),
        },
        **(transfer or {}),
    }
    argv = [model, "--kv-transfer-config", orjson.dumps(config).decode(), *flags]
    environ = {
        "SIMENGINE_VERSION": release,
        contract.SIDE_CHANNEL_HOST_ENV: "127.0.0.1",
        contract.SIDE_CHANNEL_PORT_ENV: "0",
        contract.LEASE_KEY_ENV: lease_key,
    }
    options = parse_command_line([*argv, "--host", "127.0.0.1", "--port", "0"], environ)
    engine = RunningEngine(replace(options, control=control, **changes))
    for begun in _watching:
        begun.append(engine)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()
