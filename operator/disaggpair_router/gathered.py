"""The metrics of several workers as those of one router: what a scrape of any of them gets.

Each worker tells its own at a socket of the file system. What is counted adds up. Of what every
worker sees for itself, such as engines and leases, the largest is taken.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Final

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from disaggpair_router.metrics import Metrics
from disaggpair_router.workers import Worker

_LIMIT_S: Final = 2.0
_ADDED: Final = ("disaggpair_router_in_flight", "disaggpair_router_abandoned_turns")
"""Gauges of which each worker has its own part."""

Exposition = Callable[[], Awaitable[bytes]]


@asynccontextmanager
async def gathering(worker: Worker | None, metrics: Metrics) -> AsyncIterator[Exposition]:
    """Tell the others this worker's metrics while the block runs; gives those of all together."""

    async def own() -> bytes:
        return metrics.exposition()

    if worker is None:
        yield own
        return

    async def tell(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            writer.write(metrics.exposition())
            await writer.drain()
        writer.close()

    async def of_all() -> bytes:
        others = [number for number in range(worker.count) if number != worker.number]
        told = await asyncio.gather(*(_asked(worker.socket(number)) for number in others))
        return merged([metrics.exposition(), *told])

    server = await asyncio.start_unix_server(tell, worker.socket(worker.number))
    async with server:
        yield of_all


async def _asked(path: str) -> bytes:
    """What another worker says; nothing while it starts or ends."""
    try:
        async with asyncio.timeout(_LIMIT_S):
            reader, writer = await asyncio.open_unix_connection(path)
            try:
                return await reader.read()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return b""


def merged(expositions: Iterable[bytes]) -> bytes:
    """Several expositions of the same series as one."""
    families: dict[str, Metric] = {}
    values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    for text in expositions:
        for family in text_string_to_metric_families(text.decode()):
            families.setdefault(family.name, family)
            known = values.setdefault(family.name, {})
            adds = family.type != "gauge" or family.name in _ADDED
            for sample in family.samples:
                key = (sample.name, tuple(sample.labels.items()))
                before = known.get(key, 0.0)
                known[key] = before + sample.value if adds else max(before, sample.value)
    return generate_latest(_Fixed(families, values))


class _Fixed(CollectorRegistry):
    """Families whose values are given."""

    def __init__(
        self,
        families: dict[str, Metric],
        values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]],
    ) -> None:
        super().__init__()
        self._families = families
        self._values = values

    def collect(self) -> Iterable[Metric]:
        """See CollectorRegistry."""
        for name, family in self._families.items():
            metric = Metric(name, family.documentation, family.type)
            for (sample, labels), value in self._values[name].items():
                metric.add_sample(sample, dict(labels), value)
            yield metric
