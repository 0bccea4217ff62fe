"""A router under mixed load for a time: does its memory, or anything it holds, grow?

    python tests/load/bench_soak.py [--minutes 10] [--clients 64] [--trace]

The router is in this process, with leases of a real table that end after five seconds; engines
and clients are not. Turns of all sizes, streamed and plain, with conversation ids that come again.
A line every few seconds; the last one compares the second half of the time with its first quarter.
`--trace` also names the lines of code whose memory grew (tracemalloc, which halves the speed).

Bound: loopback, the minutes.
"""

import argparse
import asyncio
import gc
import itertools
import logging
import multiprocessing
import os
import tempfile
import time
import tracemalloc
from dataclasses import astuple, dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import uvloop

from disaggpair_bed.load import granting, routers
from disaggpair_bed.load.generator import Generator, Job
from disaggpair_bed.load.numbers import load, median, say
from disaggpair_router.config import RouterConfig
from disaggpair_router.environment import Environment
from disaggpair_router.server import Router, running_router

_EVERY_S = 5.0
_JOB_S = 2.0
_SIZES = (512, 2_048, 16_384, 131_072, 786_432)


@dataclass(frozen=True)
class Sample:
    """What the router holds at a time."""

    resident_mb: float
    objects: int
    descriptors: int
    tasks: int
    leases: int


def sample(router: Router) -> Sample:
    resident = int(Path("/proc/self/statm").read_text().split()[1])
    gc.collect()
    registry = router.parts.metrics.registry
    return Sample(
        resident * os.sysconf("SC_PAGE_SIZE") / 1e6,
        len(gc.get_objects()),
        len(os.listdir("/proc/self/fd")),
        len(asyncio.all_tasks()),
        int(registry.get_sample_value("disaggpair_router_handles") or 0),
    )


def drive(pipe: Connection, clients: int) -> None:
    """Jobs of all kinds one after the other until told to stop."""
    port = pipe.recv()
    turns = failed = 0
    with Generator() as work:
        for number, (size, stream) in enumerate(
            itertools.cycle(itertools.product(_SIZES, (True, False)))
        ):
            fields = {"conversation_id": f"c-{number % 50}"} if number % 3 else {}
            count = clients if size < 100_000 else max(1, clients // 8)
            found = work(Job((port,), count, size, stream, _JOB_S, fields=fields))
            turns += found.turns
            failed += sum(found.failed.values())
            if pipe.poll():
                break
    pipe.send((turns, failed))


async def measure(args: argparse.Namespace, config: RouterConfig) -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    driver = context.Process(target=drive, args=(theirs, args.clients))
    driver.start()
    environment = Environment(lease_key=granting.KEY)
    samples: list[Sample] = []
    say("| s | memory, MB | objects | descriptors | tasks | leases |\n|---|---|---|---|---|---|")
    async with running_router(config, environment=environment) as router:
        began = time.monotonic()
        ours.send(router.port)
        earlier = None
        while (passed := time.monotonic() - began) < 60 * args.minutes:
            await asyncio.sleep(_EVERY_S)
            samples.append(sample(router))
            cells = [f"{one:.0f}" for one in (passed, *astuple(samples[-1]))]
            say(f"| {' | '.join(cells)} |")
            if args.trace and earlier is None and passed > 15 * args.minutes:
                earlier = tracemalloc.take_snapshot()
        if earlier is not None:
            for line in tracemalloc.take_snapshot().compare_to(earlier, "lineno")[:15]:
                say(str(line))
        ours.send("stop")
        turns, failed = await asyncio.to_thread(ours.recv)
        driver.join()
    quarter, half = samples[: len(samples) // 4], samples[len(samples) // 2 :]
    first = [median([astuple(one)[at] for one in quarter]) for at in range(5)]
    last = [median([astuple(one)[at] for one in half]) for at in range(5)]
    grown = ", ".join(f"{a:.0f} to {b:.0f}" for a, b in zip(first, last, strict=True))
    say(f"\n{turns} turns, {failed} failed; medians: {grown}; {load()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--trace", action="store_true")
    args = parser.parse_args()
    logging.disable(logging.INFO)
    if args.trace:
        tracemalloc.start()
    (lease,) = routers.free_ports(1)
    with (
        tempfile.TemporaryDirectory(prefix="load-") as folder,
        routers.engines(Path(folder), lease=lease) as (prefill, decode),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        urls = [f"http://127.0.0.1:{decode}"]
        fields = routers.configuration(prefill, urls, lease=lease, port=0)
        runner.run(measure(args, RouterConfig.model_validate(fields)))


if __name__ == "__main__":
    main()
