"""What our connector has around the core: D's leases and their listener, P's questions."""

import asyncio
import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Protocol

from disaggpair_bed.simengine.connector import MakeConnector, PullConnector
from disaggpair_bed.simengine.decodeconnector import DecodeConnector
from disaggpair_bed.simengine.options import EngineOptions
from disaggpair_bed.simengine.prefillconnector import PrefillConnector
from disaggpair_connector import contract
from disaggpair_connector.book import LeaseBook
from disaggpair_connector.listener import LeaseListener
from disaggpair_connector.reader import LeaseReader
from disaggpair_connector.settings import Settings


class Side(Protocol):
    """Makes the connector of one engine and runs what it needs."""

    make_connector: MakeConnector

    async def start(self, connector: PullConnector) -> None:
        """Let peers and routers in."""
        ...

    async def stop(self) -> None:
        """End every thread and connection."""
        ...


class PlainSide:
    """vLLM's own connector, which needs nothing."""

    make_connector: MakeConnector = PullConnector

    async def start(self, connector: PullConnector) -> None:
        """Nothing to do."""

    async def stop(self) -> None:
        """Nothing to do."""


class DecodeSide:
    """D's leases, and the listener before them where P reads back."""

    def __init__(self, options: EngineOptions, pair: Settings) -> None:
        self.book = LeaseBook(
            epoch=str(uuid.uuid4()),
            ttl_s=pair.decode_ttl_s,
            claim_s=pair.lease_claim_s,
            read_s=pair.lease_read_s,
        )
        self.make_connector: MakeConnector = partial(
            DecodeConnector, book=self.book, wall=time.time
        )
        self._listens = pair.bidirectional
        self._listener = LeaseListener(
            self.book,
            host=options.side_channel_host,
            port=options.lease_port,
            key=options.lease_key or None,
            block_size=options.core.block_size,
            read_s=pair.lease_read_s,
        )

    async def start(self, connector: PullConnector) -> None:
        """Listen."""
        if self._listens and isinstance(connector, DecodeConnector):
            connector.lease_port = self._listener.start()

    async def stop(self) -> None:
        """Listen no more."""
        if self._listens:
            await asyncio.to_thread(self._listener.stop)


class PrefillSide:
    """P's questions to the owners of leases."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._reader = LeaseReader()
        self.make_connector: MakeConnector = partial(
            PrefillConnector, reader=self._reader, clock=clock, wall=time.time
        )

    async def start(self, connector: PullConnector) -> None:
        """Nothing to do."""

    async def stop(self) -> None:
        """Ask no more."""
        await asyncio.to_thread(self._reader.close)


def side_of(options: EngineOptions, clock: Callable[[], float]) -> Side:
    """What belongs to the connector that an engine is started with."""
    transfer = options.transfer
    if transfer is None or transfer.pair is None:
        return PlainSide()
    if transfer.role == contract.DECODE_ROLE:
        return DecodeSide(options, transfer.pair)
    return PrefillSide(clock)
