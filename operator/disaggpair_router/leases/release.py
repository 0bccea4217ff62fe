"""Gives leases back that no turn will use: a queue and the task that empties it.

Leases end by themselves, and D takes them back when it needs the blocks, so a lost release costs
little; what it saves is the choice: D gives up the oldest first, which may be a live conversation.
"""

import asyncio
from collections import deque
from typing import Final

from disaggpair_router.leases.client import LeaseClient, ListenerError
from disaggpair_router.metrics import Metrics

_QUEUE: Final = 10_000
_AT_A_TIME: Final = 8


class LeaseReleases:
    """The oldest release is dropped when the queue is full."""

    def __init__(self, client: LeaseClient, metrics: Metrics) -> None:
        self._client = client
        self._metrics = metrics
        self._queue: deque[tuple[str, str]] = deque()
        self._added = asyncio.Event()

    def add(self, listener: str, lease: str) -> None:
        """Release a lease soon."""
        if len(self._queue) >= _QUEUE:
            self._queue.popleft()
            self._count("dropped")
        self._queue.append((listener, lease))
        self._added.set()

    async def run(self) -> None:
        """Release for ever; cancel to stop."""
        while True:
            await self._added.wait()
            self._added.clear()
            while self._queue:
                some = [self._queue.popleft() for _ in range(min(_AT_A_TIME, len(self._queue)))]
                await asyncio.gather(*(self._release(*one) for one in some))

    async def _release(self, listener: str, lease: str) -> None:
        try:
            await self._client.release(listener, lease)
        except ListenerError as error:
            self._count("failed" if error.reason == "unreachable" else "ended")
        else:
            self._count("released")

    def _count(self, result: str) -> None:
        self._metrics.releases.labels(result).inc()
