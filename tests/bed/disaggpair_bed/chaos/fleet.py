"""The routers of a run: as many as there are to be, replaced one by one."""

from contextlib import AsyncExitStack
from random import Random
from typing import Any, Final

from disaggpair_bed.chaos.bench import Bench
from disaggpair_bed.chaos.record import Record
from disaggpair_bed.routing import Routed

TIMEOUTS: Final = {
    "connect_s": 1.0,
    "prefill_s": 4.0,
    "decode_first_byte_s": 6.0,
    "decode_idle_s": 4.0,
    "probe_s": 0.05,
    "canary_s": 1.0,
    "canary_limit_s": 2.0,
    "drain_s": 0.2,
}
"""Short, so that a run meets every one of them."""

WAY_HEADER: Final = "X-Way"

DEADLINE_S: Final = 60.0
"""More than two P legs and a D leg, twice over, on a machine that is busy with other work."""


class Fleet:
    """Routers with one configuration."""

    def __init__(self, bench: Bench, record: Record) -> None:
        self._bench = bench
        self._record = record
        self._started = 0
        self._running: list[tuple[AsyncExitStack, Routed]] = []

    async def start(self, *, wait_ready: bool = True) -> None:
        """One more router."""
        stack = AsyncExitStack()
        config: dict[str, Any] = {
            "timeouts": TIMEOUTS,
            "kv": {"pull_pause_s": 0.5},
            "max_imbalance": 4,
        }
        # Every other router takes all ways, by the choice and by force.
        self._started += 1
        if self._started % 2:
            config["way"] = {"header": WAY_HEADER}
        front = await stack.enter_async_context(self._bench.router(wait_ready=wait_ready, **config))
        self._running.append((stack, front))

    async def replace(self, rng: Random) -> None:
        """End a router, cutting its turns, and start another one."""
        # Turns go to those that are in the list, so this one gets no more.
        stack, front = self._running.pop(rng.randrange(len(self._running)))
        await self.start(wait_ready=False)
        self._count(front)
        await stack.aclose()

    async def stop(self) -> None:
        """End all routers."""
        while self._running:
            stack, front = self._running.pop()
            self._count(front)
            await stack.aclose()

    def url(self, rng: Random) -> str:
        """Where a turn is sent."""
        return rng.choice(self._running)[1].url

    @property
    def fronts(self) -> list[Routed]:
        """The routers that run."""
        return [front for _, front in self._running]

    def _count(self, front: Routed) -> None:
        counted = self._record.router
        counted["hits"] += front.hits
        for reason, count in front.misses.items():
            counted[f"miss {reason}"] += count
        for way in ("FULL", "PULL", "SINGLE", "DIRECT", "NONE"):
            counted[way] += int(front.count("turns_total", way=way))
        for leg in ("prefill", "decode"):
            counted[f"{leg} again"] += int(front.count("retries_total", leg=leg))
