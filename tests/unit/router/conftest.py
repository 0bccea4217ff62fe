"""A pair of simulated engines with a router in front."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass

import pytest
import uvloop

from disaggpair_bed.routing import Routed, routed
from disaggpair_bed.simengine import RunningEngine, running_engine, watched_engines


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The HTTP server's tests run on both loops, whose transports differ where connections end."""
    factories = {"asyncio": asyncio.new_event_loop}
    if item.path.name.startswith("test_inbound_"):
        factories["uvloop"] = uvloop.new_event_loop
    return factories


@pytest.fixture(autouse=True)
def engines_end_well() -> Iterator[list[str]]:
    """No engine of a test saw an unsafe read, lost a block or has a request that hangs for ever.

    A test about a fault of the engine's own adds how the finding begins that it causes.
    """
    tolerated: list[str] = []
    with watched_engines() as engines:
        yield tolerated
    found = [finding for engine in engines for finding in engine.findings]
    assert [finding for finding in found if not finding.startswith(tuple(tolerated))] == []


@dataclass
class Pair:
    """Two engines and their router."""

    prefill: RunningEngine
    decode: RunningEngine
    routed: Routed

    def violations(self) -> list[object]:
        """Unsafe reads that either engine saw."""
        return [*self.prefill.engine.oracle.violations, *self.decode.engine.oracle.violations]


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    """Release 0.33 at both roles, P without a cache of its own so that every hit is a read.

    Every test ends without an unsafe read.
    """
    async with (
        running_engine("prefill", "--no-enable-prefix-caching") as prefill,
        running_engine("decode") as decode,
        routed([prefill], [decode]) as front,
    ):
        one = Pair(prefill, decode, front)
        yield one
        assert one.violations() == []
