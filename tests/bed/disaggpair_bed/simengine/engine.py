"""Drives one core on the event loop: steps while there is work, sleeps otherwise."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from disaggpair_bed.simengine import wire
from disaggpair_bed.simengine.core import EngineCore
from disaggpair_bed.simengine.decisions import Ending, EngineCrash
from disaggpair_bed.simengine.drain import drained
from disaggpair_bed.simengine.faults import Faults
from disaggpair_bed.simengine.findings import findings
from disaggpair_bed.simengine.handle import HandleMaker
from disaggpair_bed.simengine.job import ReadJob, Request, Step
from disaggpair_bed.simengine.options import EngineOptions, Ports
from disaggpair_bed.simengine.oracle import Oracle
from disaggpair_bed.simengine.sequence import Delta, Detokenizer
from disaggpair_bed.simengine.sidechannel import SideChannel
from disaggpair_bed.simengine.sides import side_of
from disaggpair_bed.simengine.transfers import Transfers

_POLL_S = 0.002

T = TypeVar("T")
Deliver = Callable[[Delta | None], None]
"""Takes the deltas of one request; None when the core died."""


class EngineDeadError(Exception):
    """The core has died; nothing is answered any more."""


class Engine:
    """One data-parallel rank of an engine, without the HTTP server.

    Args:
        options: of all ranks.
        engine_id: what peers know it by.
        ports: where it listens.
        faults: of all ranks.
        clock: seconds.
    """

    def __init__(
        self,
        options: EngineOptions,
        engine_id: str,
        ports: Ports,
        faults: Faults,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.options = options
        self.engine_id = engine_id
        self.oracle = Oracle(enabled=options.control)
        self.died = asyncio.Event()
        self.death = ""
        """Why the core died; empty while it lives."""
        self._ports = ports
        self._lost_kv = False
        self._faults = faults
        self._handles = HandleMaker(
            options.release,
            engine_id,
            options.side_channel_host,
            0,
            options.tp_size,
            registration_generation=options.tp_size,
        )
        self._side = side_of(options, ports.lease, faults, clock)
        self.core = EngineCore(
            options.core, options.answers, self._handles, self.oracle, self._side.make_connector
        )
        self._clock = clock
        pair = options.transfer.pair if options.transfer else None
        compatibility = wire.compatibility(options.release, options.model, pair)
        self._channel = SideChannel(
            self.core,
            self.engine_id,
            compatibility,
            clock=clock,
            changed=self._wake_up,
            thawed=faults.thawed,
        )
        self._transfers = Transfers(options, self.core, compatibility, faults, clock)
        self._wake = asyncio.Event()
        self._awake = asyncio.Event()
        self._awake.set()
        self._changed = asyncio.Event()
        self._streams: dict[str, tuple[Detokenizer, Deliver]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Open the side channel and begin to step."""
        if self.options.core.transfer is not None:
            self._handles.port = await self._channel.start(
                self.options.side_channel_host, self._ports.side_channel
            )
            await self._side.start(self.core.connector)
        self._spawn(self._run())

    async def stop(self) -> None:
        """Stop stepping; what is in flight ends as if the core had died."""
        self._die("stopped")
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._channel.stop()
        await self._transfers.close()
        await self._side.stop()

    async def idle(self, timeout_s: float) -> None:
        """Wait until no request runs and no blocks are pinned, at most so long."""
        try:
            async with asyncio.timeout(timeout_s):
                while (self._streams or len(self.core.connector.leases)) and not self.death:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return

    def submit(self, request: Request, detokenizer: Detokenizer, deliver: Deliver) -> None:
        """Queue a request.

        Raises:
            EngineDeadError: the core is dead.
        """
        if self.death:
            raise EngineDeadError(self.death)
        self._streams[request.id] = (detokenizer, deliver)
        self.core.add(request)
        self._wake_up()

    def abort(self, request_id: str) -> None:
        """The client of a request has gone; nothing happens when the request is over."""
        if self._streams.pop(request_id, None) is not None and not self.death:
            self._guarded(lambda: self.core.abort(request_id, self._clock()))
            self._wake_up()

    def abort_all(self) -> None:
        """End every request; its client is told so."""
        for request_id, (_, deliver) in tuple(self._streams.items()):
            deliver(Delta(finish_reason=Ending.ABORTED.value))
            self.abort(request_id)

    async def sleep(self, *, keeps_kv: bool) -> None:
        """Abort what runs and wait for reads; requests wait, and the KV is gone unless kept."""
        self.core.takes_new = False
        self.abort_all()
        if not keeps_kv:
            self.core.reset_prefix_cache()
            await drained(self.core, self.died)
        self._awake.clear()
        if not keeps_kv:
            self.core.reset_prefix_cache()
            self.core.pool.wipe()
            self.oracle.lost()
            self._lost_kv = True

    def wake_up(self) -> None:
        """Go on, in memory that peers have to get to know anew if the KV is gone."""
        if self._lost_kv:
            self._handles.registration_generation += self.options.tp_size
        self._lost_kv = False
        self.core.takes_new = True
        self._awake.set()
        self._wake_up()

    @property
    def is_sleeping(self) -> bool:
        """Whether requests wait."""
        return not self._awake.is_set()

    def refuse(self, params: dict[str, Any]) -> None:
        """The API refused a request with these parameters."""
        if not self.death:
            self._guarded(lambda: self.core.refuse(params))
            self._wake_up()

    def crash(self, reason: str) -> None:
        """Let the core die."""
        self._die(reason)

    @property
    def port(self) -> int:
        """Port of the side channel."""
        return self._handles.port

    @property
    def ports(self) -> Ports:
        """Where it listens; 0 for what it has not, or has not opened yet."""
        return Ports(self._handles.port, self._side.lease_port)

    def cut_watches(self) -> int:
        """Close the connections that watch the leases; returns how many there were."""
        return self._side.cut_watches()

    def findings(self) -> list[str]:
        """What is wrong now that must not be, whatever was asked of the engine."""
        return findings(self.core, self._clock(), alive=not (self.death or self._faults.is_frozen))

    @property
    def in_flight(self) -> int:
        """Requests that have not ended."""
        return len(self._streams)

    # The loop.

    async def _run(self) -> None:
        while not self.death:
            await self._faults.thawed()
            await self._awake.wait()
            self._wake.clear()
            step = self._guarded(lambda: self.core.step(self._clock()))
            if step is None:
                return
            self._dispatch(step)
            seconds = self.options.costs.step_s(
                step.prefill_tokens, step.decode_tokens, step.attended
            )
            self.core.stats.simulated_s += seconds
            await asyncio.sleep(seconds)
            self._deliver(step)
            self._changed.set()
            if not (step.computed or step.outputs or step.notifies):
                await self._sleep()

    async def _sleep(self) -> None:
        """Until something arrives or a deadline comes."""
        deadline = self.core.next_deadline()
        if self.core.must_poll:  # as vLLM steps on while requests wait
            deadline = self._clock() + _POLL_S
        timer = None
        if deadline is not None:
            delay = max(deadline - self._clock(), 0.001)
            timer = asyncio.get_running_loop().call_later(delay, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            if timer is not None:
                timer.cancel()

    def _wake_up(self) -> None:
        self._wake.set()

    def _dispatch(self, step: Step) -> None:
        for read in step.reads:
            self._spawn(self._read(read))
        for notify in step.notifies:
            self._spawn(self._transfers.notify(notify))
        for heartbeat in step.heartbeats:
            self._spawn(self._transfers.beat(heartbeat))

    async def _read(self, job: ReadJob) -> None:
        try:
            data = await self._transfers.read(job)
        except EngineCrash as crash:
            self._die(str(crash))
            return
        self._guarded(lambda: self.core.read_finished(job.request_id, data, self._clock()))
        self._wake_up()

    def _deliver(self, step: Step) -> None:
        for output in step.outputs:
            stream = self._streams.get(output.request_id)
            if stream is None:
                continue
            detokenizer, deliver = stream
            delta = detokenizer.feed(output)
            deliver(delta)
            if delta.finish_reason is not None:
                del self._streams[output.request_id]
                if output.ending is None:
                    self._guarded(partial(self.core.abort, output.request_id, self._clock()))

    def _guarded(self, action: Callable[[], T]) -> T | None:
        """Let the engine die when the core does."""
        try:
            return action()
        except EngineCrash as crash:
            self._die(str(crash))
            return None

    def _die(self, reason: str) -> None:
        if self.death:
            return
        self.death = reason
        for _, deliver in self._streams.values():
            deliver(None)
        self._streams.clear()
        self._wake_up()
        self.died.set()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
