"""A router process: serves what `assembly` built, and ends in order."""

import asyncio
import contextlib
import gc
import logging
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from disaggpair_router.assembly import Parts, assemble
from disaggpair_router.config import RouterConfig, StaticEndpoints
from disaggpair_router.environment import Environment
from disaggpair_router.errors import ConfigError
from disaggpair_router.gathered import gathering
from disaggpair_router.held import HeldKV
from disaggpair_router.inbound.patience import Patience
from disaggpair_router.inbound.server import Server
from disaggpair_router.listening import Listener, loopback
from disaggpair_router.metricsport import InnerPort, debug_pages, metrics_pages
from disaggpair_router.probe import Probe, static_endpoints
from disaggpair_router.running import Running
from disaggpair_router.seen.config import Tracing
from disaggpair_router.seen.loop import sample_delay
from disaggpair_router.seen.tracing import Tracer
from disaggpair_router.tenantfiles import TenantFiles
from disaggpair_router.workers import Worker

logger = logging.getLogger(__name__)

_EXPIRE_EVERY_S = 10.0
_YOUNG_OBJECTS = 5_000
"""New objects after which the collector looks for cycles among them. A turn makes some hundreds
that go by themselves; with Python's 700 the looking took a fifteenth of its time."""
_CUT_S = 0.5
"""For connections that are still open once all turns have ended."""


@dataclass(frozen=True, slots=True)
class Router:
    """A router that serves."""

    port: int
    """The API's port, also when the configuration left it to the system."""
    debug_port: int | None
    """The debug page's, or None without one."""
    parts: Parts


@asynccontextmanager
async def running_router(
    config: RouterConfig,
    *,
    environment: Environment | None = None,
    clock: Callable[[], float] = time.monotonic,
    worker: Worker | None = None,
) -> AsyncIterator[Router]:
    """Serve while the block runs; then take no more, finish the turns, release the handles.

    A `worker` shares its ports and its metrics with the others.

    Raises ConfigError when the tenants' keys cannot be read, or what tracing needs is not there.
    """
    environment = environment or Environment()
    parts = assemble(config, clock, environment)
    if environment.engine_key and parts.routes.door.tenants.is_open:
        logger.warning("whoever reaches this router uses its engine key: it asks for no API key")
    tenants = _tenant_files(config, parts)
    async with AsyncExitStack() as stack:
        if config.tracing is not None:
            parts.routes.turns.tracer = tracer = _tracer(config.tracing, config.pair)
            stack.push_async_callback(asyncio.to_thread, tracer.close)
        await stack.enter_async_context(parts.engines)
        stack.callback(parts.routes.requests.close)
        await parts.held.start()
        debug_port = await _inner_ports(stack, config, parts, worker)
        stack.push_async_callback(parts.held.stop)
        await stack.enter_async_context(_background(_watch(config, parts), parts.running))
        if config.timeouts.canary_s:
            await stack.enter_async_context(_background(parts.canary.run(), parts.running))
        if parts.guard.is_on:
            await stack.enter_async_context(_background(parts.guard.run(), parts.running))
        for work in parts.held.tasks():
            await stack.enter_async_context(_background(work, parts.running))
        await stack.enter_async_context(_background(_expire(parts.held), parts.running))
        delay = sample_delay(parts.metrics.loop_delay_seconds.observe, time.monotonic)
        await stack.enter_async_context(_background(delay, parts.running))
        if tenants is not None:
            reading = tenants.run(config.tenants.reload_s)
            await stack.enter_async_context(_background(reading, parts.running))
        api = Server(
            parts.routes,
            patience=Patience(stalled=config.timeouts.stalled_client_s),
            max_held_bytes=config.limits.max_request_bytes,
        )
        await stack.enter_async_context(_background(api.run(), parts.running))
        listener = Listener(api, "the API")
        stack.push_async_callback(_drain, api, listener, parts, config.timeouts.drain_s)
        port = await listener.start(config.host, config.port, shared=worker is not None)
        logger.info("router of pair %s listens on port %d", config.pair, port)
        yield Router(port, debug_port, parts)


async def _inner_ports(
    stack: AsyncExitStack, config: RouterConfig, parts: Parts, worker: Worker | None
) -> int | None:
    """Serve metrics and debug page where they are wanted; the debug page's port."""
    shared = worker is not None
    if config.metrics_port:
        exposition = await stack.enter_async_context(gathering(worker, parts.metrics))
        port = InnerPort(metrics_pages(exposition))
        await stack.enter_async_context(
            _served(port, "metrics", config.host, config.metrics_port, parts.running, shared=shared)
        )
    if parts.debug is None or config.debug_port is None:
        return None
    port = InnerPort(debug_pages(parts.debug))
    return await stack.enter_async_context(
        _served(
            port,
            "the debug page",
            loopback(config.host),
            config.debug_port,
            parts.running,
            shared=shared,
        )
    )


@asynccontextmanager
async def _served(
    pages: InnerPort, what: str, host: str, port: int, running: Running, *, shared: bool
) -> AsyncIterator[int]:
    """Serve pages while the block runs; their port."""
    server = Server(pages)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(_background(server.run(), running))
        stack.push_async_callback(server.close, _CUT_S)
        listener = Listener(server, what)
        stack.callback(listener.stop)
        yield await listener.start(host, port, shared=shared)


async def serve(
    config: RouterConfig, environment: Environment, worker: Worker | None = None
) -> None:
    """Serve until SIGTERM or SIGINT; ConfigError when the tenants' keys cannot be read."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if worker is not None:
        loop.add_reader(worker.lifeline, stop.set)
    async with running_router(config, environment=environment, worker=worker):
        # What lives as long as the process need not be looked at by every collection.
        gc.collect()
        gc.freeze()
        gc.set_threshold(_YOUNG_OBJECTS)
        await stop.wait()
        logger.info("stopping: turns in flight have %g s", config.timeouts.drain_s)


def _tracer(tracing: Tracing, pair: str) -> Tracer:
    try:
        # A router without tracing needs none of it, and it takes a fifth of a second to import.
        from disaggpair_router.seen.otel import otlp_tracer
    except ImportError:
        raise ConfigError(
            "tracing is set, but OpenTelemetry is not installed: install disaggpair[tracing]."
        ) from None
    return otlp_tracer(tracing, pair)


def _tenant_files(config: RouterConfig, parts: Parts) -> TenantFiles | None:
    """The reader of the tenants' keys, which has read them once."""
    door = parts.routes.door

    def use(digests: Mapping[bytes, str]) -> None:
        door.tenants = door.tenants.with_digests(digests)

    if not config.tenants.directory:
        return None
    files = TenantFiles(Path(config.tenants.directory), use=use)
    files.load()
    return files


async def _watch(config: RouterConfig, parts: Parts) -> None:
    if isinstance(config.endpoints, StaticEndpoints):
        static = static_endpoints(config.endpoints.prefill, config.endpoints.decode)
        probe = Probe(
            static,
            engines=parts.engines,
            endpoints=parts.endpoints,
            every_s=config.timeouts.probe_s,
        )
        await probe.run()
    else:
        # Only a router in a cluster needs the Kubernetes client, which takes a second to import.
        from disaggpair_router.pods import watch_pods

        await watch_pods(config.endpoints, parts.endpoints)


async def _drain(api: Server, listener: Listener, parts: Parts, limit_s: float) -> None:
    parts.running.is_draining = True
    listener.stop()
    api.close_idle()
    await parts.running.drain(limit_s)
    await api.close(_CUT_S)


async def _expire(held: HeldKV) -> None:
    while True:
        await asyncio.sleep(_EXPIRE_EVERY_S)
        held.expire()


@asynccontextmanager
async def _background(work: Coroutine[Any, Any, None], running: Running) -> AsyncIterator[None]:
    """Run an endless task beside the block; its failure is logged and shows in /healthz."""

    def report(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            running.is_broken = True
            logger.critical("a background task ended", exc_info=task.exception())

    task = asyncio.create_task(work)
    task.add_done_callback(report)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await task
