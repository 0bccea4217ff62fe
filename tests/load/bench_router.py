"""The time that a router adds to the first byte, beside other routers and none, by turns.

    python tests/load/bench_router.py [--clients 1,16] [--sizes 2,64] [--modes stream,plain] \
        [--vllm-router PROGRAM] [--example-python PYTHON --example-proxy FILE] [--rounds 4]

Engines answer at once (`disaggpair_bed.load.engine`); clients send a turn as soon as the one before
has ended, so with several clients a time is mostly waiting for a processor. In every round each
router gets the same short time, in changing order. Medians over the rounds of each round's p50 and
p99, in ms; "added" is what is above the same round without a router; "whole" is the p50 to the last
byte; "cpu" is the router's own processor time of a turn.

`--paced` gives the engines times instead: 20 ms to prefill, 20 ms to the first chunk, then a chunk
every 100 ms, 20 in all. A turn then takes two seconds, a time to the first byte is 40 ms and what
the router adds, and clients come one after the other.

PROGRAM is `vllm-router` of PyPI's vllm-router 0.1.17 in an environment of its own. FILE is vLLM's
examples/disaggregated/disaggregated_serving/disagg_proxy_multiturn.py as of commit
030ea52effcb05071543c8c42b8f0145e94cee43, PYTHON one with fastapi, uvicorn[standard] and httpx.

Bound: loopback, the time of all rounds, and a minute for turns that hang.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from disaggpair_bed.load import routers
from disaggpair_bed.load.generator import Generator, Job, Measured
from disaggpair_bed.load.numbers import load, median, percentile, say

NONE = "none"
BASE = "vllm-router"
PACED = ("--prefill-s", "0.02", "--first-s", "0.02", "--gap-s", "0.1", "--chunks", "20")
TURN_S = 2.0


@dataclass
class Column:
    """What one router did in one row of the table, by round."""

    p50: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    turns: int = 0
    cpu_s: float = 0.0
    failed: dict[int, int] = field(default_factory=dict)

    def add(self, measured: Measured, cpu_s: float) -> None:
        if measured.first:
            self.p50.append(1e3 * percentile(measured.first, 50))
            self.p99.append(1e3 * percentile(measured.first, 99))
            self.whole.append(1e3 * percentile(measured.whole, 50))
        self.turns += measured.turns
        self.cpu_s += cpu_s
        for status, count in measured.failed.items():
            self.failed[status] = self.failed.get(status, 0) + count


def rounds_of(
    work: Callable[[Job], Measured],
    contenders: Sequence[routers.Running],
    job: Job,
    count: int,
) -> dict[str, Column]:
    """All rounds of one row."""
    columns = {one.name: Column() for one in contenders}
    for number in range(count):
        first = number % len(contenders)
        for one in (*contenders[first:], *contenders[:first]):
            before = one.cpu_s()
            measured = work(replace(job, ports=one.ports))
            columns[one.name].add(measured, one.cpu_s() - before)
    return columns


def show(what: str, columns: dict[str, Column]) -> None:
    """One row of the table for each router."""
    base, none = columns.get(BASE), columns.get(NONE)
    for name, column in columns.items():
        p50, p99 = median(column.p50), median(column.p99)
        cells = [what, name, f"{p50:.2f}", f"{p99:.2f}"]
        added = (
            [ours - bare for ours, bare in zip(column.p50, none.p50, strict=False)] if none else []
        )
        cells.append(f"{median(added):.2f}" if name != NONE else "")
        cells.append(f"{p50 / median(base.p50):.2f}" if base and name != NONE else "")
        cells.append(f"{p99 / median(base.p99):.2f}" if base and name != NONE else "")
        cells.append(f"{median(column.whole):.2f}")
        cells.append(f"{1e3 * column.cpu_s / max(1, column.turns):.2f}" if name != NONE else "")
        failed = ", ".join(f"{count}x {status}" for status, count in column.failed.items())
        cells.append(f"{column.turns}" + (f" ({failed} failed)" if failed else ""))
        say(f"| {' | '.join(cells)} |")


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=numbers, default=[1, 16, 128, 512])
    parser.add_argument("--sizes", type=numbers, default=[2, 64, 1024], help="KB")
    parser.add_argument("--modes", default="stream,plain")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5, help="of a router in a round")
    parser.add_argument("--vllm-router", type=Path)
    parser.add_argument("--example-python", type=Path)
    parser.add_argument("--example-proxy", type=Path)
    parser.add_argument("--leases", action="store_true", help="ours with leases, too")
    parser.add_argument("--paced", action="store_true", help="engines that take their time")
    parser.add_argument("--workers", type=int, default=0, help="ours with so many processes, too")
    parser.add_argument("--only-ours", action="store_true", help="nothing to compare with")
    args = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="load-")))
        (lease,) = routers.free_ports(1)
        times = PACED if args.paced else ()
        engines = routers.engines(folder, *times, lease=lease if args.leases else 0)
        prefill, decode = stack.enter_context(engines)
        url = f"http://127.0.0.1:{decode}"
        contenders = [stack.enter_context(routers.ours(folder, prefill, [url]))]
        if args.leases:
            leased = routers.ours(folder, prefill, [url], lease=lease, name="ours, leases")
            contenders.append(stack.enter_context(leased))
        if args.workers:
            one_way = {"workers": args.workers, "kv": {"bidirectional": False}}
            many = routers.ours(
                folder, prefill, [url], name=f"ours, {args.workers} workers", **one_way
            )
            contenders.append(stack.enter_context(many))
        if args.vllm_router:
            rust = routers.vllm_router(folder, args.vllm_router, prefill, decode)
            contenders.append(stack.enter_context(rust))
        if args.example_proxy:
            proxy = routers.example_proxy(
                folder, args.example_python, args.example_proxy, prefill, decode
            )
            contenders.append(stack.enter_context(proxy))
        if not args.only_ours:
            contenders.append(routers.Running(NONE, (prefill, decode)))
        work = stack.enter_context(Generator())
        began = time.monotonic()
        heads = ("turns", "router", "p50", "p99", "added p50", "p50 ratio", "p99 ratio", "whole")
        say(f"| {' | '.join((*heads, 'cpu', 'turns'))} |")
        say("|---" * (len(heads) + 2) + "|")
        for mode in args.modes.split(","):
            for size in args.sizes:
                for clients in args.clients:
                    job = Job(
                        (),
                        clients,
                        size * 1024,
                        mode == "stream",
                        2 * TURN_S if args.paced else args.seconds,
                        spread_s=TURN_S if args.paced else 0.0,
                    )
                    columns = rounds_of(work, contenders, job, args.rounds)
                    show(f"{size} KB, {mode}, {clients}", columns)
        say(f"\n{time.monotonic() - began:.0f} s, {load()}")


if __name__ == "__main__":
    main()
