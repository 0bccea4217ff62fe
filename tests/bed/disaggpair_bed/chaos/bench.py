"""Simulated engines with our connector, each at an address of its own, and routers with leases."""

import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from disaggpair_bed.routing import Routed, eventually, routed
from disaggpair_bed.simengine import RunningEngine, running_engine
from disaggpair_bed.simengine.pairconnector import PairConnector
from disaggpair_connector import contract
from disaggpair_router.environment import Environment

LEASE_KEY = "lease-key-of-the-pair"

_FIRST_NET = 128
"""Of 127.0.0.0/8; clusters of the bed have the networks below."""


@dataclass
class Bench:
    """The engines of one pair."""

    lease_port: int
    """The same at every engine."""
    prefills: list[RunningEngine] = field(default_factory=list)
    decodes: list[RunningEngine] = field(default_factory=list)

    @property
    def prefill(self) -> RunningEngine:
        """The first P."""
        return self.prefills[0]

    @property
    def decode(self) -> RunningEngine:
        """The first D."""
        return self.decodes[0]

    @property
    def engines(self) -> list[RunningEngine]:
        """All of them."""
        return [*self.prefills, *self.decodes]

    @property
    def leases(self) -> int:
        """Leases that all D have now."""
        return sum(map(leases_of, self.decodes))

    @asynccontextmanager
    async def router(self, *, wait_ready: bool = True, **config: Any) -> AsyncIterator[Routed]:
        """One more router, which follows every D when the block begins if it is to `wait_ready`."""
        ranks = self.decode.options.dp_size
        kv = {
            "leases": {"port": self.lease_port, "data_parallel_size": ranks},
            **config.pop("kv", {}),
        }
        async with routed(
            self.prefills,
            self.decodes,
            wait_ready=wait_ready,
            environment=Environment.of({contract.LEASE_KEY_ENV: LEASE_KEY}),
            kv=kv,
            **config,
        ) as front:
            if wait_ready:
                await eventually(lambda: follows(front) == ranks * len(self.decodes))
            yield front


def follows(front: Routed) -> int:
    """Lease listeners that answer a router."""
    held: Any = front.router.parts.held
    return sum(map(held._followers.can_claim, tuple(held._followers._tasks)))


def leases_of(engine: RunningEngine) -> int:
    """Leases that an engine has now."""
    count = 0
    for one in engine.ranks.engines:
        connector = one.core.connector
        assert isinstance(connector, PairConnector)
        connector.settle()
        count += sum(connector.book.counts().values())
    return count


def tokens_read(engine: RunningEngine) -> int:
    """Tokens that an engine has read from others."""
    return sum(one.core.stats.external_kv_transfer for one in engine.ranks.engines)


@asynccontextmanager
async def lease_bench(
    *,
    prefills: int = 1,
    decodes: int = 1,
    flags: Sequence[str] = (),
    prefill_flags: Sequence[str] = ("--no-enable-prefix-caching",),
    extra: dict[str, Any] | None = None,
    **changes: Any,
) -> AsyncIterator[Bench]:
    """Engines on loopback addresses of their own.

    `flags` are of all engines and `prefill_flags` of P, which has no cache of its own unless they
    say so, so that every hit is a read.
    """
    addresses = _addresses(prefills + decodes)
    bench = Bench(_free_port(addresses))
    given = {**(extra or {}), contract.EXTRA_LEASE_PORT: bench.lease_port}
    async with AsyncExitStack() as stack:

        async def start(role: Literal["prefill", "decode"], *more: str) -> RunningEngine:
            address = addresses.pop()
            return await stack.enter_async_context(
                running_engine(
                    role,
                    *flags,
                    *more,
                    connector="DisaggPair",
                    lease_key=LEASE_KEY,
                    extra=given,
                    **{"host": address, "side_channel_host": address, **changes},
                )
            )

        for _ in range(prefills):
            bench.prefills.append(await start("prefill", *prefill_flags))
        for _ in range(decodes):
            bench.decodes.append(await start("decode"))
        yield bench


def _addresses(count: int) -> list[str]:
    """Of this process alone, so that benches of several processes do not meet."""
    process = os.getpid()
    net = f"127.{_FIRST_NET + process % 100}.{process // 100 % 250}"
    return [f"{net}.{number}" for number in range(1, count + 1)]


def _free_port(addresses: Sequence[str]) -> int:
    with socket.socket() as probe:
        probe.bind((addresses[0], 0))
        port: int = probe.getsockname()[1]
    return port
