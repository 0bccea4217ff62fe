"""The network behind one core: reads, notifications and heartbeats that a step asked for."""

import asyncio
from collections.abc import Callable

from disaggpair_bed.simengine import decisions
from disaggpair_bed.simengine.core import EngineCore
from disaggpair_bed.simengine.faults import Faults
from disaggpair_bed.simengine.job import Heartbeat, NotifyJob, ReadJob
from disaggpair_bed.simengine.kv import BYTES_PER_POSITION
from disaggpair_bed.simengine.options import EngineOptions
from disaggpair_bed.simengine.peers import Peers, TransferFailure


class Transfers:
    """Moves blocks from the engines that a core reads from."""

    def __init__(
        self,
        options: EngineOptions,
        core: EngineCore,
        compatibility: str,
        faults: Faults,
        clock: Callable[[], float],
    ) -> None:
        self._options = options
        self._core = core
        self._faults = faults
        self._clock = clock
        self._settings = options.core.transfer or decisions.TransferSettings()
        self._peers = Peers(compatibility, options.core.block_size, clock)

    async def close(self) -> None:
        """Close every connection."""
        await self._peers.close()

    async def read(self, job: ReadJob) -> bytes | None:
        """The blocks of a peer; None when they could not be had.

        Raises:
            EngineCrash: vLLM's worker would have died.
        """
        try:
            await self._fault()
            data = await self._fetch(job)
        except TransferFailure:
            self._core.stats.failed_transfers += 1
            return None
        if data is not None and self._faults.take("corrupt_read"):
            return bytes(byte ^ 0x5A for byte in data)
        return data

    async def _fault(self) -> None:
        if fault := self._faults.take("slow_read"):
            await asyncio.sleep(fault.delay_s)
        if self._faults.take("hang_read"):
            await self._faults.until_cleared()
        if self._faults.take("fail_read"):
            raise TransferFailure("a fault of the test bed")

    async def _fetch(self, job: ReadJob) -> bytes | None:
        connection = await self._peers.connect(job.peer)
        release = self._options.release
        if (
            self._settings.bidirectional
            and release.declines_expired
            and decisions.is_expired(job.expiry, connection.clock_offset, self._clock())
        ):
            self._core.stats.expired_requests += 1
            if release.decline_counts_as_failure:
                self._core.stats.failed_transfers += 1
            return None
        blocks = decisions.paired_blocks(job.local_blocks, job.remote_block_ids)
        size = len(blocks) * self._options.core.block_size * BYTES_PER_POSITION
        costs, tokens = self._options.costs, len(blocks) * self._options.core.block_size
        seconds = costs.transfer_s(len(blocks), size, tokens)
        self._core.stats.simulated_s += seconds
        await asyncio.sleep(seconds)
        if self._core.connector.is_late(job.request_id, self._clock()):
            return None
        return await connection.read(job.remote_request_id, blocks, job.identity)

    async def notify(self, job: NotifyJob) -> None:
        """Tell a peer that its blocks may be freed."""
        try:
            connection = await self._peers.connect(job.peer)
            connection.send({"op": "notify", "request_id": job.remote_request_id})
        except TransferFailure:
            self._core.stats.failed_notifications += 1

    async def beat(self, beat: Heartbeat) -> None:
        """Renew a peer's leases."""
        try:
            connection = await self._peers.connect(beat.peer)
            connection.send({"op": "heartbeat", "request_ids": list(beat.request_ids)})
        except TransferFailure:
            return
