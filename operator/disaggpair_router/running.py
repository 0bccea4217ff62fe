"""The turns in flight: each is a task, which outlives its client when it must."""

import asyncio
from typing import Any


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
    def count(self) -> int:
        """Turns that run."""
        return len(self._tasks)

    @property
    def abandoned(self) -> int:
        """Turns that run on without a client."""
        return len(self._abandoned)

    def begin(self, task: asyncio.Task[Any]) -> None:
        """A task runs a turn now."""
        self._tasks.add(task)

    def end(self, task: asyncio.Task[Any]) -> None:
        """It does no more."""
        self._tasks.discard(task)
        self._abandoned.discard(task)

    def abandon(self, task: asyncio.Task[Any]) -> None:
        """The task's client left. Beyond the bound the task is cut, whatever it is doing."""
        if task not in self._tasks:
            return
        if len(self._abandoned) < self._max_abandoned:
            self._abandoned.add(task)
        else:
            task.cancel()

    async def drain(self, limit_s: float) -> None:
        """Wait until all turns ended, at most so long, then cut the others."""
        self.is_draining = True
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=limit_s)
        for task in set(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks))
