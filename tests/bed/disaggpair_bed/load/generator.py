"""The generator of turns: so many clients at once, each with its next turn when one has ended.

Runs in a process of its own (`Generator`), so that its work is not the caller's. Without a router
it calls both legs itself, which is the least that a turn can take.
"""

import asyncio
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from multiprocessing.connection import Connection
from typing import Any

import orjson
import uvloop

from disaggpair_bed.load import prompts
from disaggpair_bed.load.exchange import Exchange, head_of
from disaggpair_bed.load.prompts import Prompt

PATH = "/v1/chat/completions"
_NUMBERS = count()
_LEFT_S = 60.0
"""How long turns in flight may take after the time is over."""


@dataclass(frozen=True, slots=True)
class Job:
    """What to do; the answer is a `Measured`."""

    ports: tuple[int, ...]
    """A router's, or P's and D's for turns without one."""
    clients: int
    prompt_bytes: int
    stream: bool
    seconds: float
    turns: int = 0
    """Turns of each client; 0 for as many as the time allows."""
    spread_s: float = 0.0
    """Time over which the clients come, one after the other; 0 for all at once."""
    watch_chunks: bool = False
    """Whether to keep the times of chunks."""
    watch_from_s: float = 0.0
    """Chunks that are read before this time, or after `seconds`, are only counted."""
    fields: dict[str, Any] = field(default_factory=dict)
    """More members of the body."""


@dataclass(slots=True)
class Measured:
    """Times in seconds."""

    first: list[float] = field(default_factory=list)
    """To the first byte of an answer's body. A client's first turn, which waits for connections
    to be made, counts only if it had no other."""
    whole: list[float] = field(default_factory=list)
    failed: dict[int, int] = field(default_factory=dict)
    """By status; 0 for a connection that broke, -1 for a turn that did not end in time."""
    seconds: float = 0.0
    turns: int = 0
    chunks: int = 0
    """All that were read."""
    delays: list[float] = field(default_factory=list)
    """Of chunks: from the engine's writing to the client's reading."""
    gaps: list[float] = field(default_factory=list)
    """Between two reads of a stream that held chunks."""
    together: list[int] = field(default_factory=list)
    """Chunks in one read."""


class _Client:
    """One client: turn after turn until the time is over."""

    def __init__(self, job: Job, legs: list[Prompt], measured: Measured, until: float) -> None:
        self._job = job
        self._measured = measured
        self._until = until
        self._watch_from = until - job.seconds + job.watch_from_s
        self._legs = legs
        self._exchanges = [Exchange() for _ in job.ports]
        self.firsts: list[float] = []
        self._wholes: list[float] = []
        self._last_read = 0.0

    async def run(self, delay_s: float) -> None:
        """All turns of this client, after a delay."""
        await asyncio.sleep(delay_s)
        turns = 0
        while time.perf_counter() < self._until and (
            not self._job.turns or turns < self._job.turns
        ):
            turns += 1
            try:
                await self._turn()
            except OSError:
                self._fail(0)
                await asyncio.sleep(0.05)
        for exchange in self._exchanges:
            if exchange.is_open:
                exchange.close()
        skipped = 1 if len(self.firsts) > 1 else 0
        self._measured.first += self.firsts[skipped:]
        self._measured.whole += self._wholes[skipped:]
        self._measured.turns += len(self.firsts)

    async def _turn(self) -> None:
        number = next(_NUMBERS)
        for at, port in enumerate(self._job.ports):
            if not self._exchanges[at].is_open:
                self._exchanges[at] = await _connected(port)
                if self._job.watch_chunks and at == len(self._job.ports) - 1:
                    self._exchanges[at].on_data = self._chunks
        self._last_read = 0.0
        last = self._exchanges[-1]
        # Made before the clock starts: a client has its body, and copying a megabyte takes time.
        if len(self._job.ports) == 1:
            body = self._legs[-1].body(number)
            began = time.perf_counter()
            status = await _asked(last, body)
        else:
            prefill, decode = (one.body(number) for one in self._legs)
            began = time.perf_counter()
            status = await _asked(self._exchanges[0], prefill)
            if status == 200:
                params = orjson.loads(self._exchanges[0].body())["kv_transfer_params"]
                status = await _asked(last, prompts.with_params(decode, orjson.dumps(params)))
        if status == 200:
            self.firsts.append(last.first_at - began)
            self._wholes.append(time.perf_counter() - began)
        else:
            self._fail(status)

    def _fail(self, status: int) -> None:
        self._measured.failed[status] = self._measured.failed.get(status, 0) + 1

    def _chunks(self, data: bytes, now: float) -> None:
        found = data.count(b'"content":"')
        if not found:
            return
        self._measured.chunks += found
        last, self._last_read = self._last_read, now
        if not self._watch_from <= now <= self._until:
            return
        self._measured.together.append(found)
        at = data.find(b'"content":"') + 11
        stamp = data[at : data.find(b" ", at)]
        if stamp.isdigit():
            self._measured.delays.append((time.monotonic_ns() - int(stamp)) / 1e9)
        if last:
            self._measured.gaps.append(now - last)


async def _connected(port: int) -> Exchange:
    loop = asyncio.get_running_loop()
    _, exchange = await loop.create_connection(Exchange, "127.0.0.1", port)
    return exchange


async def _asked(exchange: Exchange, body: bytes) -> int:
    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def done(status: int) -> None:
        if not ended.done():
            ended.set_result(status)

    exchange.ask(head_of(PATH, len(body)), body, done)
    return await ended


async def measure(job: Job) -> Measured:
    """Do a job; bounded by its time and a minute."""
    measured = Measured()
    prompt = prompts.chat(job.prompt_bytes, stream=job.stream, **job.fields)
    legs = [prompts.leg(prompt, prefill=True), prompt]
    began = time.perf_counter()
    clients = [_Client(job, legs, measured, began + job.seconds) for _ in range(job.clients)]
    tasks = [
        asyncio.create_task(client.run(job.spread_s * number / job.clients))
        for number, client in enumerate(clients)
    ]
    done, late = await asyncio.wait(tasks, timeout=job.seconds + _LEFT_S)
    for task in late:
        task.cancel()
    if late:
        await asyncio.wait(late)
        measured.failed[-1] = len(late)
    for task in done:
        task.result()
    measured.seconds = time.perf_counter() - began
    return measured


def _serve(pipe: Connection) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        while (job := pipe.recv()) is not None:
            pipe.send(runner.run(measure(job)))


class Generator:
    """The process; use as a context manager."""

    def __enter__(self) -> Callable[[Job], Measured]:
        """A function that does a job there."""
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()

        def work(job: Job) -> Measured:
            self._pipe.send(job)
            found = self._pipe.recv()
            assert isinstance(found, Measured)
            return found

        return work

    def __exit__(self, *_: object) -> None:
        """End it."""
        self._pipe.send(None)
        self._process.join(5)
        self._process.kill()


__all__ = ["Generator", "Job", "Measured", "Prompt"]
