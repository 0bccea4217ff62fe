"""Two simulated engines with our connector, and as many routers with leases as a test wants."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from disaggpair_bed.routing import Routed, eventually, routed
from disaggpair_bed.simengine import RunningEngine, running_engine
from disaggpair_bed.simengine.pairconnector import PairConnector
from disaggpair_router.environment import Environment

LEASE_KEY = "lease-key-of-the-pair"


class LeaseBench:
    """The engines."""

    def __init__(self, prefill: RunningEngine, decode: RunningEngine) -> None:
        self.prefill = prefill
        self.decode = decode

    @asynccontextmanager
    async def router(self, *prefill: Any, **config: Any) -> AsyncIterator[Routed]:
        """One more router, which follows D when the block begins."""
        port = urlsplit(self.decode.lease_urls[0]).port
        kv = {"leases": {"port": port}, **config.pop("kv", {})}
        environment = Environment.of({"DISAGGPAIR_LEASE_KEY": LEASE_KEY})
        async with routed(
            prefill or [self.prefill], [self.decode], environment=environment, kv=kv, **config
        ) as front:
            held: Any = front.router.parts.held
            await eventually(lambda: any(map(held._followers.can_claim, held._followers._tasks)))
            yield front

    @property
    def leases(self) -> int:
        """Leases that D has now."""
        connector = self.decode.engine.core.connector
        assert isinstance(connector, PairConnector)
        return sum(connector.book.counts().values())


@asynccontextmanager
async def lease_bench(**options: Any) -> AsyncIterator[LeaseBench]:
    """P without a cache of its own, so that every hit is a read."""
    ours: dict[str, Any] = {"connector": "DisaggPair", "lease_key": LEASE_KEY, **options}
    async with (
        running_engine("prefill", "--no-enable-prefix-caching", **ours) as prefill,
        running_engine("decode", **ours) as decode,
    ):
        yield LeaseBench(prefill, decode)


def tokens_read(engine: RunningEngine) -> int:
    """Tokens that an engine has read from the other."""
    return engine.engine.core.stats.external_kv_transfer
