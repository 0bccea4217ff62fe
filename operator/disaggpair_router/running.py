"""The turns in flight: each has a task of its own, which outlives its client when it must."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Running:
    """Tasks of turns; those without a client are bounded in number."""

    def __init__(self, *, max_abandoned: int) -> None:
        self._max_abandoned = max_abandoned
        self._tasks: set[asyncio.Task[Any]] = set()
        self._abandoned: set[asyncio.Task[Any]] = set()
        self.is_draining = False
        """The process was asked to end: no new work, readiness is off."""
        self.is_broken = False
        """A part that should run as long as the process has failed: only a restart helps."""

    @property
    def abandoned(self) -> int:
        """Turns that run on without a client."""
        return len(self._abandoned)

    def start(self, turn: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a turn as a task."""
        task = asyncio.create_task(turn)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def abandon(self, task: asyncio.Task[Any]) -> None:
        """The task's client left. Beyond the bound the task is cut, whatever it is doing."""
        if task.done():
            return
        task.add_done_callback(self._forget)
        if len(self._abandoned) < self._max_abandoned:
            self._abandoned.add(task)
        else:
            task.cancel()

    async def drain(self, limit_s: float) -> None:
        """Wait until all turns ended, at most so long, then cut the others."""
        self.is_draining = True
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=limit_s)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._abandoned.discard(task)
        if not task.cancelled():
            # Nobody awaits the task: fetch its exception, which was logged with the turn.
            task.exception()
