"""Kills, stops and resets real engines and the router, one thing after the other."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from random import Random
from typing import Final

import aiohttp

from disaggpair_bed.chaos.real.bench import ENDED_BY_UCX, RealBench, healthy, restart
from disaggpair_bed.chaos.record import Record
from disaggpair_bed.cpu.engine import Engine
from disaggpair_bed.cpu.freeze import ENGINE_CORE, WORKER

_LASTS_S: Final = (0.3, 1.5, 4.0, 9.0)
"""How long somebody stands still: less and more than a read may take."""
_ROLES: Final = {"P": 0, "D": 1}
_NAP_S: Final = 60.0
"""More than P's leases and D's reads last."""

Act = Callable[[], Awaitable[None]]


class RealDisturber:
    """Does one thing at a time: all kinds in an order that a seed decides, then all again.

    Args:
        rng: decides.
        bench: to whom.
        session: of HTTP.
        record: counts what was done, and what must not be.
        say: is told.
    """

    def __init__(
        self,
        rng: Random,
        bench: RealBench,
        session: aiohttp.ClientSession,
        record: Record,
        say: Callable[[str], None],
    ) -> None:
        self._rng = rng
        self._bench = bench
        self._session = session
        self._record = record
        self._say = say
        self.is_starting = False
        """Whether an engine starts, which takes all of the machine that others leave it."""
        self._deck: list[str] = []
        self._acts: dict[str, Act] = {"router killed": self._kill_router}
        for role, at in _ROLES.items():
            engine = bench.engines[at]
            self._acts |= {
                f"{role} killed": partial(self._kill, engine),
                f"{role} stopped": partial(self._stop, engine, None),
                f"{role}'s worker stopped": partial(self._stop, engine, WORKER),
                f"{role}'s core stopped": partial(self._stop, engine, ENGINE_CORE),
                f"{role} paused": partial(self._nap, engine),
                f"{role}'s cache reset": partial(self._reset, engine),
            }

    async def act(self) -> None:
        """Do the next thing, end it, and see whether the engines are there."""
        if not self._deck:
            self._deck = self._rng.sample(list(self._acts), len(self._acts))
        name = self._deck.pop()
        self._record.events[name] += 1
        began = time.monotonic()
        await self._acts[name]()
        await self.mend()
        self._say(f"{name}: {time.monotonic() - began:.1f} s")

    async def mend(self) -> None:
        """Start engines again that ended by themselves, of which a few may."""
        for engine in self._bench.engines:
            if engine.running and await asyncio.to_thread(engine.is_healthy):
                continue
            await asyncio.sleep(1.0)  # one that is only slow to answer
            if engine.running and await asyncio.to_thread(engine.is_healthy):
                continue
            log = engine.log.read_text(errors="replace")
            if log.count(ENDED_BY_UCX) > self._record.events["ended by UCX"]:
                self._record.events["ended by UCX"] += 1
            else:
                self._record.faults.append(
                    f"{engine.role} ended by itself; its log is {engine.log}"
                )
            await self._kill(engine)

    async def _lasts(self) -> None:
        await asyncio.sleep(self._rng.choice(_LASTS_S))

    async def _kill_router(self) -> None:
        await asyncio.to_thread(self._bench.router.kill)
        await asyncio.sleep(self._rng.choice((0.0, 1.0)))
        self._bench.router.start()
        await self._bench.router.ready(self._session)

    async def _kill(self, engine: Engine) -> None:
        self.is_starting = True
        try:
            await restart(engine)
        finally:
            self.is_starting = False

    async def _stop(self, engine: Engine, name: str | None) -> None:
        with stopped(engine, name):
            await self._lasts()
        await healthy(engine)

    async def _nap(self, engine: Engine) -> None:
        """What vLLM does before a sleep."""
        if await self._post(engine, "/pause?mode=abort&clear_cache=true") != 200:
            self._record.faults.append(f"{engine.role} did not pause")
        await self._lasts()
        await self._post(engine, "/resume")

    async def _reset(self, engine: Engine) -> None:
        # It fails beside running requests, as it does without the connector.
        if await self._post(engine, "/reset_prefix_cache") not in (200, 500):
            self._record.faults.append(f"{engine.role} did not answer a reset")

    async def _post(self, engine: Engine, path: str) -> int:
        limit = aiohttp.ClientTimeout(total=_NAP_S)
        try:
            async with self._session.post(engine.url + path, timeout=limit) as response:
                return response.status
        except (aiohttp.ClientError, TimeoutError):
            return 0


@contextlib.contextmanager
def stopped(engine: Engine, name: str | None) -> Iterator[None]:
    """Hold an engine's processes of a name still, or all of them."""
    held = [one.pid for one in engine.usage() if name in (None, one.name)]
    for pid in held:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in held:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
