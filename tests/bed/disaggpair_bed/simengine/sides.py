"""What our connector has around the core: leases with their listener, questions to others."""

import asyncio
import uuid
from collections.abc import Callable
from functools import partial
from typing import Protocol

from disaggpair_bed.simengine.connector import MakeConnector, PullConnector
from disaggpair_bed.simengine.decodeconnector import DecodeConnector
from disaggpair_bed.simengine.faults import Faults
from disaggpair_bed.simengine.faultylistener import FaultyListener, FreezingBook
from disaggpair_bed.simengine.leaseterms import decode_terms, prefill_terms
from disaggpair_bed.simengine.options import EngineOptions
from disaggpair_bed.simengine.pairconnector import PairConnector
from disaggpair_bed.simengine.prefillconnector import PrefillConnector
from disaggpair_connector.contract import DECODE_ROLE
from disaggpair_connector.reader import LeaseReader
from disaggpair_connector.settings import Settings


class Side(Protocol):
    """Makes the connector of one engine and runs what it needs."""

    make_connector: MakeConnector
    lease_port: int
    """Where the lease listener serves; 0 without one."""

    async def start(self, connector: PullConnector) -> None:
        """Let peers and routers in."""
        ...

    def cut_watches(self) -> int:
        """Close the connections that watch the leases; returns how many there were."""
        ...

    async def stop(self) -> None:
        """End every thread and connection."""
        ...


class PlainSide:
    """vLLM's own connector, which needs nothing."""

    make_connector: MakeConnector = PullConnector
    lease_port = 0

    async def start(self, connector: PullConnector) -> None:
        """Nothing to do."""

    def cut_watches(self) -> int:
        """There are none."""
        return 0

    async def stop(self) -> None:
        """Nothing to do."""


class PairSide:
    """The leases of an engine, the listener before them, and what asks for those of others."""

    def __init__(
        self,
        options: EngineOptions,
        role: str,
        pair: Settings,
        lease_port: int,
        faults: Faults,
        clock: Callable[[], float],
    ) -> None:
        is_decode = role == DECODE_ROLE
        terms = (
            decode_terms(pair.decode_ttl_s, pair.lease_read_s)
            if is_decode
            else prefill_terms(pair.prefill_lease_s)
        )
        book = FreezingBook(
            faults=faults,
            epoch=str(uuid.uuid4()),
            ttl_s=terms.ttl_s,
            claim_s=pair.lease_claim_s,
            read_s=terms.kept_s,
        )
        self.lease_port = 0
        self._reader = LeaseReader()
        self.make_connector: MakeConnector = partial(
            DecodeConnector if is_decode else PrefillConnector,
            book=book,
            reader=self._reader,
            clock=clock,
        )
        self._listener = FaultyListener(
            book,
            faults=faults,
            host=options.side_channel_host,
            port=lease_port,
            key=options.lease_key or None,
            block_size=options.core.block_size,
            read_s=terms.read_s,
        )

    async def start(self, connector: PullConnector) -> None:
        """Listen."""
        assert isinstance(connector, PairConnector)
        self.lease_port = connector.lease_port = self._listener.start()

    def cut_watches(self) -> int:
        """Close the connections that watch the leases; returns how many there were."""
        return self._listener.cut_watches()

    async def stop(self) -> None:
        """Ask no more, and listen no more."""
        await asyncio.to_thread(self._reader.close)
        await asyncio.to_thread(self._listener.stop)


def side_of(
    options: EngineOptions, lease_port: int, faults: Faults, clock: Callable[[], float]
) -> Side:
    """What belongs to the connector that an engine is started with.

    Args:
        options: of the engine.
        lease_port: where the lease listener of our connector serves; 0 for any free port.
        faults: of the listener.
        clock: seconds.
    """
    transfer = options.transfer
    if transfer is None or transfer.pair is None:
        return PlainSide()
    return PairSide(options, transfer.role, transfer.pair, lease_port, faults, clock)
