"""A work queue for asyncio: keys in, one call of the work per key, some at a time.

`schedule` decides which key is next; this module adds the event loop, its clock and the workers.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from disaggpair_operator.schedule import Backoff, Schedule

K = TypeVar("K", bound=Hashable)

Work = Callable[[K], Awaitable[float | None]]
"""Does what a key asks for; says in how many seconds to do it again, or None for not by itself."""
OnFailure = Callable[[K, Exception, int, float], None]
"""Told of a failed attempt: key, error, failures in a row, seconds until the next attempt."""


class WorkQueue(Generic[K]):
    """Keys that wait for work. To be used inside one event loop."""

    def __init__(
        self,
        work: Work[K],
        *,
        on_failure: OnFailure[K],
        workers: int = 4,
        backoff: Backoff | None = None,
        uniform: Callable[[], float] = random.random,
    ) -> None:
        """`workers` keys are worked on at the same time; `uniform` gives numbers in [0, 1)."""
        self._work = work
        self._on_failure = on_failure
        self._workers = workers
        self._backoff = backoff or Backoff()
        self._uniform = uniform
        self._schedule: Schedule[K] = Schedule()
        self._failures: dict[K, int] = {}
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._schedule)

    def add(self, key: K, delay_s: float = 0.0) -> None:
        """Work on the key in `delay_s` seconds, or earlier when it waits already."""
        self._schedule.add(key, self._now() + delay_s)
        self._changed.set()

    async def run(self) -> None:
        """Work until cancelled. Cancelling interrupts the work that is under way."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._serve())

    async def _serve(self) -> None:
        while True:
            key = self._schedule.take(self._now())
            if key is None:
                await self._wait()
                continue
            try:
                await self._attempt(key)
            finally:
                self._schedule.finish(key)
                self._changed.set()

    async def _wait(self) -> None:
        """Sleep until a key is due or something changed."""
        self._changed.clear()
        due = self._schedule.next_due()
        delay = None if due is None else max(0.0, due - self._now())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await self._changed.wait()

    async def _attempt(self, key: K) -> None:
        try:
            again_s = await self._work(key)
        except Exception as error:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            delay_s = self._backoff.delay_s(failures, self._uniform())
            self._schedule.add(key, self._now() + delay_s)
            self._on_failure(key, error, failures, delay_s)
        else:
            self._failures.pop(key, None)
            if again_s is not None:
                self._schedule.add(key, self._now() + again_s)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
