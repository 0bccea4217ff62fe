"""The data-parallel ranks behind one API server: engines that live and die together."""

import asyncio
import uuid
from collections.abc import Sequence

from disaggpair_bed.simengine.engine import Engine
from disaggpair_bed.simengine.faults import Faults
from disaggpair_bed.simengine.options import EngineOptions, Ports

RANK_HEADER = "X-data-parallel-rank"


class RankError(ValueError):
    """A rank that does not exist; the text is for the client."""


class Ranks:
    """All engines of one server.

    Args:
        options: of all of them.
        faults: that a test switches on.
        ports: where each listens; as the options have it when None.
    """

    def __init__(
        self, options: EngineOptions, faults: Faults, ports: Sequence[Ports] | None = None
    ) -> None:
        self.options = options
        pinned = options.transfer.engine_id if options.transfer else None
        base = pinned or str(uuid.uuid4())
        names = [base]
        if options.dp_size > 1:
            names = [f"{base}_dp{rank}" for rank in range(options.dp_size)]
        self.engines = tuple(
            Engine(options, name, ports[rank] if ports else options.ports(rank), faults)
            for rank, name in enumerate(names)
        )
        self.died = asyncio.Event()
        self.is_paused = False
        """New requests are refused."""
        self._watches: tuple[asyncio.Task[None], ...] = ()

    @property
    def death(self) -> str:
        """Why the cores died; empty while they live."""
        return next((engine.death for engine in self.engines if engine.death), "")

    @property
    def in_flight(self) -> int:
        """Requests that have not ended."""
        return sum(engine.in_flight for engine in self.engines)

    async def start(self) -> None:
        """Open the side channels and begin to step."""
        for engine in self.engines:
            await engine.start()
        self._watches = tuple(asyncio.create_task(self._watch(one)) for one in self.engines)

    async def _watch(self, engine: Engine) -> None:
        """As in vLLM, a core that dies takes the others with it."""
        await engine.died.wait()
        self.crash(engine.death)
        self.died.set()

    def crash(self, reason: str) -> None:
        """Let the cores die."""
        for engine in self.engines:
            engine.crash(reason)

    async def idle(self, timeout_s: float) -> None:
        """Wait until no request runs and no blocks are pinned, at most so long."""
        await asyncio.gather(*(engine.idle(timeout_s) for engine in self.engines))

    async def stop(self) -> None:
        """Stop stepping; what is in flight ends as if the cores had died."""
        await asyncio.gather(*(engine.stop() for engine in self.engines))
        await asyncio.gather(*self._watches)
        self.died.set()

    def pick(self, header: str | None) -> Engine:
        """The rank that a request names, else the one with the least to do.

        A name that is no number is ignored, as in vLLM.

        Raises:
            RankError: there is no such rank.
        """
        try:
            rank = int(header or "")
        except ValueError:
            return min(self.engines, key=lambda engine: engine.in_flight)
        count = len(self.engines)
        if not 0 <= rank < count:
            raise RankError(f"data_parallel_rank {rank} is out of range [0, {count}).")
        return self.engines[rank]
