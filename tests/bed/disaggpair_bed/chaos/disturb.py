"""Kills, freezes and breaks engines, listeners and routers, one thing after the other."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Final

from disaggpair_bed.chaos.bench import Bench
from disaggpair_bed.chaos.fleet import Fleet
from disaggpair_bed.chaos.record import Record
from disaggpair_bed.simengine import RunningEngine
from disaggpair_bed.simengine.engine import Engine

_LASTS_S: Final = (0.05, 0.2, 0.6)
"""How long what can end lasts."""

_OF_REQUESTS: Final[dict[str, dict[str, Any]]] = {
    "status": {"status": 500},
    "status 503": {"status": 503, "retry_after": 1},
    "reset": {},
    "crash": {"count": 1},
    "hang": {"count": 1},
    "delay": {"delay_s": 0.1},
    "drop_after_read": {},
    "null_params": {},
    "malformed_body": {"after": 1},
    "empty_body": {},
    "finish_error": {},
    "stream_error": {"after": 2},
    "cut_stream": {"after": 2},
    "crash_stream": {"after": 1, "count": 1},
    "truncate_stream": {"after": 2},
    "omit_end": {},
    "slow_first_byte": {"delay_s": 0.1},
    "slow_stream": {"delay_s": 0.01},
    "split_chunks": {"size": 7},
    "crlf": {},
    "comments": {},
    "multiline": {},
    "unhealthy": {},
    "slow_read": {"delay_s": 0.1},
    "fail_read": {},
    "hang_read": {"count": 1},
}
_OF_LISTENERS: Final[dict[str, dict[str, Any]]] = {
    "lease_status": {"status": 500},
    "lease_gone": {},
    "lease_garbage": {},
    "lease_malformed": {},
    "lease_drop": {},
    "lease_silent": {},
    "lease_slow": {"delay_s": 0.1},
}


class Disturber:
    """Does one thing at a time, chosen from a seed.

    Args:
        rng: chooses.
        bench: the engines.
        fleet: the routers.
        record: counts what was done.
    """

    def __init__(self, rng: Random, bench: Bench, fleet: Fleet, record: Record) -> None:
        self._rng = rng
        self._bench = bench
        self._fleet = fleet
        self._record = record
        self._naps: set[asyncio.Task[None]] = set()
        self._acts: dict[str, tuple[Callable[[], Awaitable[None]], int]] = {
            "requests fail": (self._requests_fail, 10),
            "listener fails": (self._listener_fails, 6),
            "engine killed": (self._kill, 2),
            "engine restarted": (self._restart, 2),
            "engine frozen": (self._freeze, 3),
            "engine asleep": (self._sleep, 2),
            "cache reset": (self._reset, 1),
            "watches cut": (self._cut, 2),
            "router replaced": (self._replace_router, 3),
        }

    async def act(self) -> None:
        """Do the next thing, and end it."""
        names = list(self._acts)
        weights = [weight for _, weight in self._acts.values()]
        name = self._rng.choices(names, weights)[0]
        self._record.events[name] += 1
        await self._acts[name][0]()

    async def end(self) -> None:
        """Let every engine be well."""
        await asyncio.gather(*self._naps)
        for engine in self._bench.engines:
            engine.faults.clear()
            engine.faults.thaw()
            if engine.closed:
                await engine.restart()

    def _engine(self) -> RunningEngine:
        return self._rng.choice(self._bench.engines)

    async def _lasts(self) -> None:
        await asyncio.sleep(self._rng.choice(_LASTS_S))

    async def _requests_fail(self) -> None:
        await self._fail(self._engine(), _OF_REQUESTS)

    async def _listener_fails(self) -> None:
        await self._fail(self._rng.choice(self._bench.engines), _OF_LISTENERS)

    async def _fail(self, engine: RunningEngine, kinds: dict[str, dict[str, Any]]) -> None:
        kind = self._rng.choice(list(kinds))
        settings = {"count": self._rng.choice([1, 3, None]), **kinds[kind]}
        self._record.events[kind.split()[0]] += 1
        engine.faults.add(
            kind.split()[0],
            probability=self._rng.choice([1.0, 0.5]),
            seed=self._rng.randrange(1000),
            **settings,
        )
        await self._lasts()
        engine.faults.clear()
        if engine.closed:
            await engine.restart()

    async def _kill(self) -> None:
        engine = self._engine()
        engine.ranks.crash("killed")
        await self._lasts()
        await engine.restart()

    async def _restart(self) -> None:
        await self._engine().restart()

    async def _freeze(self) -> None:
        engine = self._engine()
        engine.faults.freeze()
        await self._lasts()
        engine.faults.thaw()

    async def _sleep(self) -> None:
        """It waits for those who read, and other things happen meanwhile."""
        lasts_s = self._rng.choice(_LASTS_S)

        async def nap(engine: Engine) -> None:
            await engine.sleep(keeps_kv=False)
            await asyncio.sleep(lasts_s)
            engine.wake_up()

        for one in self._engine().ranks.engines:
            task = asyncio.create_task(nap(one))
            self._naps.add(task)
            task.add_done_callback(self._naps.discard)

    async def _reset(self) -> None:
        for one in self._engine().ranks.engines:
            one.core.reset_prefix_cache()

    async def _cut(self) -> None:
        for one in self._engine().ranks.engines:
            one.cut_watches()

    async def _replace_router(self) -> None:
        await self._fleet.replace(self._rng)
