"""Giving blocks back to D that no turn will read, instead of letting them wait for their end.

A request of one token at P with a handle that claims no tokens makes P tell D to free the blocks
without reading any. Unusable handles come from edited histories, forks, evictions and refusals.
Done in the background, bounded and slowly: losing a release costs D memory for some minutes, a
burst of them would cost P's clients latency.
"""

import asyncio
import contextlib
from collections import deque

from disaggpair_router.endpoints import Endpoints
from disaggpair_router.errors import RouterError
from disaggpair_router.kv import release_body
from disaggpair_router.metrics import Metrics
from disaggpair_router.pick import Endpoint
from disaggpair_router.request import PATHS
from disaggpair_router.session import Entry
from disaggpair_router.upstream import Engines

_QUEUE = 1_000
_LIMIT_S = 10.0


class Releases:
    """A queue and the task that empties it. The oldest release is dropped when it is full."""

    def __init__(
        self, *, engines: Engines, endpoints: Endpoints, metrics: Metrics, per_s: float
    ) -> None:
        self._engines = engines
        self._endpoints = endpoints
        self._metrics = metrics
        self._per_s = per_s
        self._queue: deque[Entry] = deque()
        self._added = asyncio.Event()

    def add(self, entry: Entry) -> None:
        """Queue an entry that has a handle."""
        if not self._per_s:
            return
        if len(self._queue) >= _QUEUE:
            self._queue.popleft()
            self._count("dropped")
        self._queue.append(entry)
        self._added.set()

    async def run(self) -> None:
        """Release for ever; cancel to stop."""
        while True:
            await self._added.wait()
            self._added.clear()
            while self._queue:
                await self._release(self._queue.popleft())
                await asyncio.sleep(1 / self._per_s)

    async def flush(self, limit_s: float) -> None:
        """Release what is queued as fast as P takes it, within a time; for the shutdown."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while self._queue:
                    await self._release(self._queue.popleft())

    async def _release(self, entry: Entry) -> None:
        prefill = self._reader_of(entry)
        if prefill is None or entry.handle is None:
            self._count("impossible")
            return
        body = release_body(entry.model, entry.handle)
        try:
            with self._endpoints.leg(prefill):
                async with self._engines.post(
                    prefill, PATHS["completions"], body, entry.headers, limit_s=_LIMIT_S
                ) as reply:
                    await reply.whole(_LIMIT_S)
        except RouterError:
            self._count("failed")
        else:
            self._count("released")

    def _reader_of(self, entry: Entry) -> Endpoint | None:
        """A ready P that can shake hands with the D of the handle, in its present life."""
        decode = self._endpoints.get(entry.holder.endpoint)
        if decode is None or decode.incarnation != entry.holder.incarnation:
            return None
        return self._endpoints.reader_of(decode)

    def _count(self, result: str) -> None:
        self._metrics.releases.labels(result).inc()
