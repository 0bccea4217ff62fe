"""Watches over one run of a container: hooks, probes, and stopping it in good order."""

import asyncio
import signal
from collections.abc import Callable
from typing import Protocol

from disaggpair_bed.node.context import Grace, PodContext
from disaggpair_bed.node.probes import ProbeState
from disaggpair_bed.node.process import Exit, Process
from disaggpair_bed.node.spec import Container, Handler, Probe
from disaggpair_bed.node.waits import cancel, first_of, never

_LEAST_GRACE_S = 2.0
"""What a container gets between SIGTERM and SIGKILL although its hook used up the grace."""


class Owner(Protocol):
    """Who wants to know what the probes found."""

    def set_health(self, *, started: bool, ready: bool) -> None:
        """Called whenever one of the two may have changed."""
        ...

    def event(self, reason: str, message: str, warning: bool = False) -> None:
        """Called with what is worth an event."""
        ...


class Supervision:
    """One run of one container, from its start to its end."""

    def __init__(
        self, context: PodContext, container: Container, process: Process, owner: Owner
    ) -> None:
        self._context, self._container = context, container
        self._process, self._owner = process, owner
        self._started = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> Exit:
        """Return when the process has ended: by itself, because a probe or hook condemned it, or
        because `stop` was set. Cancelling kills it without grace."""
        ended = asyncio.create_task(self._process.wait())
        readiness = asyncio.create_task(self._readiness())
        verdict = asyncio.create_task(self._verdict())
        try:
            await first_of(ended, verdict, stop.wait())
            if not ended.done():
                own = Grace()
                if stop.is_set():
                    self._owner.event("Killing", f"Stopping container {self._container.name}")
                else:
                    own.limit(verdict.result())
                    self._owner.event("Killing", f"Container {self._container.name} is unhealthy")
                await cancel(verdict)
                await self._terminate(ended, own)
            return await ended
        finally:
            self._process.signal(signal.SIGKILL)
            await cancel(readiness, verdict)
            # Also when cancelled: a pod's files and address are given up after its processes.
            await self._process.wait()
            await cancel(ended)

    async def _terminate(self, ended: "asyncio.Task[Exit]", own: Grace) -> None:
        over = asyncio.create_task(first_of(own.over(), self._context.grace.over()))
        pre_stop = self._container.pre_stop
        try:
            if pre_stop is not None:
                hook = asyncio.create_task(self._run(pre_stop, None))
                await first_of(hook, ended, over)
                if hook.done() and hook.result() is not None:
                    self._owner.event("FailedPreStopHook", f"{hook.result()}", warning=True)
                await cancel(hook)
            self._process.signal(signal.SIGTERM)
            if pre_stop is not None and over.done():
                await asyncio.wait((ended,), timeout=_LEAST_GRACE_S)
            await first_of(ended, over)
        finally:
            await cancel(over)
        self._process.signal(signal.SIGKILL)
        await asyncio.wait((ended,))

    async def _verdict(self) -> float:
        """Return when a hook or a probe condemns this run: the grace it gets, in seconds."""
        container, grace_s = self._container, self._context.pod.grace_s
        if self._context.node.config.hollow:
            self._owner.set_health(started=True, ready=True)
            await never()
        if container.post_start is not None:
            error = await self._run(container.post_start, None)
            if error is not None:
                self._owner.event("FailedPostStartHook", error, warning=True)
                return grace_s
        if container.startup is not None:
            passed = await self._probe("Startup", container.startup, lambda _: True)
            if not passed:
                return _grace_of(container.startup, grace_s)
        self._owner.set_health(started=True, ready=container.readiness is None)
        self._started.set()
        if container.liveness is None:
            await never()
            raise AssertionError
        await self._probe("Liveness", container.liveness, lambda passing: not passing)
        return _grace_of(container.liveness, grace_s)

    async def _readiness(self) -> None:
        """Goes on while the container is being stopped, as on a real node."""
        await self._started.wait()

        def settle(passing: bool) -> bool:
            self._owner.set_health(started=True, ready=passing)
            return False

        if self._container.readiness is not None:
            await self._probe("Readiness", self._container.readiness, settle)

    async def _probe(self, kind: str, probe: Probe, is_final: Callable[[bool], bool]) -> bool:
        """Probe until a settled result is final; returns it."""
        loop = asyncio.get_running_loop()
        state = ProbeState(probe, passing=kind == "Liveness")
        await asyncio.sleep(probe.initial_delay_s)
        while True:
            began = loop.time()
            error = await self._run(probe.handler, probe.timeout_s)
            if error is not None:
                self._owner.event("Unhealthy", f"{kind} probe failed: {error}", warning=True)
            if state.record(error is None) and is_final(state.passing):
                return state.passing
            await asyncio.sleep(max(0.0, began + probe.period_s - loop.time()))

    async def _run(self, handler: Handler, timeout_s: float | None) -> str | None:
        return await self._context.node.handlers.run(
            handler, self._container, self._context.place.pod_ip, self._process, timeout_s
        )


def _grace_of(probe: Probe, pod_grace_s: float) -> float:
    return pod_grace_s if probe.grace_s is None else probe.grace_s
