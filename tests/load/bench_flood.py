"""What a flood of refused requests at the lease listener leaves of a scheduler beside it.

    python tests/load/bench_flood.py [--seconds 4] [--connections 60]

A thread of this process does steps of Python and system calls, as a scheduler does; another process
asks the listener for leases with a wrong key. Printed are steps a second and the longest hundredth,
quiet, under the flood, and under it without the pace of refusals. Bound: the seconds given, three
times; loopback.
"""

import argparse
import multiprocessing
import os
import socket
import statistics
import sys
import time
from typing import Any

from disaggpair_connector.book import LeaseBook
from disaggpair_connector.listener import LeaseListener
from disaggpair_connector.refusals import Refusals

REQUEST = b"GET /leases HTTP/1.1\r\nhost: d\r\nauthorization: Bearer wrong\r\n\r\n"


class Unpaced(Refusals):
    """No refusal is late."""

    def delay_s(self) -> float:
        return 0.0


def flood(port: int, connections: int, seconds: float, asked: Any) -> None:
    """Ask on all connections by turns, each as soon as it has its answer."""
    import selectors

    selector = selectors.DefaultSelector()
    for _ in range(connections):
        client = socket.create_connection(("127.0.0.1", port))
        client.sendall(REQUEST)
        selector.register(client, selectors.EVENT_READ)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for key, _ in selector.select(0.1):
            answered: Any = key.fileobj
            if not answered.recv(4096):
                return
            asked.value += 1
            answered.sendall(REQUEST)


def steps(seconds: float) -> tuple[float, float]:
    """Steps a second, and the 99th percentile of their seconds."""
    spent = []
    end = time.perf_counter() + seconds
    while (begun := time.perf_counter()) < end:
        for _ in range(10):
            os.getppid()
            sum(range(2_000))
        spent.append(time.perf_counter() - begun)
    return len(spent) / seconds, statistics.quantiles(spent, n=100)[-1]


def measure(name: str, refusals: Refusals | None, connections: int, seconds: float) -> None:
    book = LeaseBook(epoch="e", ttl_s=100, claim_s=10, read_s=20)
    listener = LeaseListener(
        book, host="127.0.0.1", port=0, key="key", block_size=16, read_s=20, refusals=refusals
    )
    port = listener.start()
    asked = multiprocessing.Value("q", 0)
    other = multiprocessing.Process(target=flood, args=(port, connections, seconds, asked))
    if connections:
        other.start()
        time.sleep(0.5)
    rate, slow_s = steps(seconds - 0.5)
    if connections:
        other.join()
    listener.stop()
    sys.stdout.write(
        f"| {name} | {asked.value / seconds:,.0f} | {rate:,.0f} | {slow_s * 1e3:.1f} |\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--connections", type=int, default=60)
    args = parser.parse_args()
    sys.stdout.write(
        "| | refused a second | steps a second | p99 of a step, ms |\n|---|---|---|---|\n"
    )
    measure("quiet", None, 0, args.seconds)
    measure("flood", None, args.connections, args.seconds)
    measure("flood, refused at once", Unpaced(time.monotonic), args.connections, args.seconds)


if __name__ == "__main__":
    main()
