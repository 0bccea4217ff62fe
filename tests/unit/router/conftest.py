"""A pair of simulated engines with a router in front."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from disaggpair_bed.routing import Routed, routed
from disaggpair_bed.simengine import RunningEngine, running_engine


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
