"""Chunks through a router: how many a second, and whether they arrive as they were sent.

    python tests/load/bench_tokens.py [--streams 200] [--rate 20000] [--vllm-router PROGRAM]

An engine sends the chunks of all streams at a fixed rate; an answer has 200, and turns begin one
after the other. Without a router the same streams show what engine, client and machine do to the
gaps by themselves. Watched is what comes once all streams run. "delay" is from the engine's writing
to the client's reading, "gap" between two reads of a stream, "joined" the share of reads with more
than one chunk, "cpu" the router's processor time of a chunk and "a core" what it comes to.

Bound: loopback, the time of all rounds, and a minute for streams that hang.
"""

import argparse
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from disaggpair_bed.load import routers
from disaggpair_bed.load.generator import Generator, Job
from disaggpair_bed.load.numbers import load, percentile, say

CHUNKS = 200
LENGTHS = 4
"""Time of a round, in times of an answer. The first, while streams begin, is not watched."""


@dataclass
class Sum:
    """All rounds of one router."""

    delays: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    together: list[int] = field(default_factory=list)
    chunks: int = 0
    """With those that are not watched."""
    seconds: float = 0.0
    """That were watched."""
    cpu_s: float = 0.0


def show(name: str, found: Sum) -> None:
    cpu_us = 1e6 * found.cpu_s / max(1, found.chunks)
    cells = [name, f"{sum(found.together) / found.seconds:,.0f}"]
    for values in (found.delays, found.gaps):
        cells += [f"{1e3 * percentile(values, percent):.2f}" for percent in (50, 90, 99)]
    joined = sum(count > 1 for count in found.together) / max(1, len(found.together))
    cells += [f"{100 * joined:.1f} %", f"{cpu_us:.1f}", f"{1e6 / cpu_us:,.0f}" if cpu_us else ""]
    say(f"| {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--rate", type=float, default=20_000.0, help="chunks a second, all streams")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--vllm-router", type=Path)
    args = parser.parse_args()
    gap_s = args.streams / args.rate
    answer_s = CHUNKS * gap_s
    job = Job(
        (),
        args.streams,
        2048,
        True,
        seconds=LENGTHS * answer_s,
        spread_s=answer_s,
        watch_chunks=True,
        watch_from_s=answer_s,
    )
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="load-")))
        flags = ("--gap-s", str(gap_s), "--chunks", str(CHUNKS))
        prefill, decode = stack.enter_context(routers.engines(folder, *flags))
        url = f"http://127.0.0.1:{decode}"
        contenders = [stack.enter_context(routers.ours(folder, prefill, [url]))]
        if args.vllm_router:
            rust = routers.vllm_router(folder, args.vllm_router, prefill, decode)
            contenders.append(stack.enter_context(rust))
        contenders.append(routers.Running("none", (prefill, decode)))
        work = stack.enter_context(Generator())
        sums = {one.name: Sum() for one in contenders}
        for number in range(args.rounds):
            first = number % len(contenders)
            for one in (*contenders[first:], *contenders[:first]):
                before = one.cpu_s()
                found = work(replace(job, ports=one.ports))
                total = sums[one.name]
                total.cpu_s += one.cpu_s() - before
                total.chunks += found.chunks
                total.seconds += job.seconds - job.watch_from_s
                total.delays += found.delays
                total.gaps += found.gaps
                total.together += found.together
        say(f"{args.streams} streams, a chunk every {1e3 * gap_s:.1f} ms in each")
        say(
            "| router | chunks/s | delay p50, ms | p90 | p99 | gap p50, ms | p90 | p99 | joined "
            "| cpu, us | a core |"
        )
        say("|---|---|---|---|---|---|---|---|---|---|---|")
        for name, total in sums.items():
            show(name, total)
        say(f"\n{load()}")


if __name__ == "__main__":
    main()
