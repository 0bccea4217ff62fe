"""How long the lease listener takes while its process's main thread computes in Python.

    python tests/load/bench_listener.py [--requests 400] [--rate 100]

The listener runs in a process of its own, whose main thread does one of these meanwhile:

    idle       sleeps
    bytecode   runs Python code without an end
    held       calls something that keeps the interpreter lock for 5 ms, again and again

The client sends at a rate and not as fast as it can, as routers do, and prints milliseconds.
"""

import argparse
import json
import multiprocessing
import socket
import statistics
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from disaggpair_connector.book import LeaseBook
from disaggpair_connector.digest import digests_of
from disaggpair_connector.listener import LeaseListener

HOST = "127.0.0.1"
KEY = "bench-key"
TOKENS = 131_072
BLOCK_SIZE = 16
LISTED = 200


def burn_bytecode(until: float) -> None:
    count = 0
    while time.monotonic() < until:
        for number in range(1000):
            count += number


def hold_lock(until: float) -> None:
    size = 1000
    while True:  # as many numbers as are added up in 5 ms
        start = time.perf_counter()
        sum(range(size))
        if time.perf_counter() - start > 0.005:
            break
        size = size * 5 // 4
    while time.monotonic() < until:
        sum(range(size))


MAIN: dict[str, Callable[[float], None]] = {
    "idle": lambda until: time.sleep(max(0.0, until - time.monotonic())),
    "bytecode": burn_bytecode,
    "held": hold_lock,
}


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def serve(work: str, leases: int, pipe: Connection) -> None:
    book = LeaseBook(epoch="bench", ttl_s=3600, claim_s=3600, read_s=3600)
    digests = digests_of(list(range(TOKENS)), TOKENS, b"")
    blocks = array("I", range(TOKENS // BLOCK_SIZE))
    for number in range(leases):
        book.grant(
            id=f"lease-{number}",
            conversation=f"conversation-{number}",
            tokens=TOKENS,
            block_ids=(blocks,),
            digests=digests,
            handle={
                "remote_engine_id": "engine",
                "remote_request_id": f"request-{number}",
                "remote_host": HOST,
                "remote_port": 5600,
                "remote_block_ids": [],
                "tp_size": 1,
            },
            divisible=True,
            pinned=None,
        )
    listener = LeaseListener(book, host=HOST, port=0, key=KEY, block_size=BLOCK_SIZE, read_s=30)
    pipe.send(listener.start())
    while not pipe.poll():
        MAIN[work](time.monotonic() + 0.5)
    listener.stop()


class Client:
    """One client of the listener, which sends each request in one piece, as aiohttp does."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket = socket.create_connection((HOST, port))
        self._answers = self._socket.makefile("rb")
        self.tokens: list[str] = []

    def ask(self, method: str, path: str, value: Any = None) -> Any:
        body = b"" if value is None else json.dumps(value).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nhost: {HOST}\r\nauthorization: Bearer {KEY}\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        self._socket.sendall(head.encode() + body)
        assert b" 200 " in self._answers.readline()
        length = 0
        while (line := self._answers.readline()) != b"\r\n":
            if line.startswith(b"content-length: "):
                length = int(line[16:])
        return json.loads(self._answers.read(length))

    def list(self, _number: int) -> None:
        self.ask("GET", "/leases")

    def claim(self, number: int) -> None:
        claimed = self.ask("POST", f"/leases/lease-{number}/claim", {"for": "read"})
        self.tokens.append(claimed["kv_transfer_params"]["disaggpair"]["token"])

    def read(self, number: int) -> None:
        self.ask("POST", f"/leases/lease-{number}/read", {"token": self.tokens[number]})

    def claim_anew(self, number: int) -> None:
        self._socket.close()
        self._socket = socket.create_connection((HOST, self._port))
        self._answers = self._socket.makefile("rb")
        self.claim(number)


def timed(ask: Callable[[int], None], numbers: range, rate: float) -> str:
    took: list[float] = []
    for number in numbers:
        start = time.perf_counter()
        ask(number)
        took.append((time.perf_counter() - start) * 1e3)
        time.sleep(max(0.0, 1 / rate - took[-1] / 1e3))
    cuts = statistics.quantiles(took, n=100)
    return f"p50 {cuts[49]:6.2f}   p99 {cuts[98]:6.2f}   max {max(took):6.2f}"


@contextmanager
def serving(work: str, leases: int) -> Iterator[Client]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(work, leases, theirs))
    process.start()
    yield Client(ours.recv())
    ours.send("stop")
    process.join()


def main() -> None:
    parser = argparse.ArgumentParser(description="Latency of the lease listener.")
    parser.add_argument("--requests", type=int, default=400, help="requests of each kind")
    parser.add_argument("--rate", type=float, default=100.0, help="requests a second")
    given = parser.parse_args()
    first, second = range(given.requests), range(given.requests, 2 * given.requests)
    for work in MAIN:
        with serving(work, LISTED) as client:
            say(f"{work:9} list {LISTED}   {timed(client.list, first, given.rate)}")
        with serving(work, 2 * given.requests) as client:
            say(f"{work:9} claim      {timed(client.claim, first, given.rate)}")
            say(f"{work:9} read 128k  {timed(client.read, first, given.rate)}")
            say(f"{work:9} claim anew {timed(client.claim_anew, second, given.rate)}")


if __name__ == "__main__":
    main()
