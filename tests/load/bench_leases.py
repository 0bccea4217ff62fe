"""What leases cost: memory, calls beside many others, listings and events.

    .venv/bin/python tests/load/bench_leases.py

Bound: one process, under a minute, about 1 GiB.
"""

import argparse
import gc
import itertools
import json
import random
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

from disaggpair_connector.book import LeaseBook
from disaggpair_connector.digest import digests_of

BLOCK_TOKENS = 16
ROUNDS = 21
VOCABULARY = 151_936


class Block:
    """Stands for the pool's own object, which is there with or without a lease."""

    def __init__(self, block_id: int) -> None:
        self.block_id = block_id


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def new_book() -> LeaseBook:
    return LeaseBook(epoch="0" * 32, ttl_s=3600, claim_s=30, read_s=30)


NUMBERS = itertools.count()
POOL = [Block(number) for number in range(200_000)]
TOKENS = [random.Random(1).randrange(VOCABULARY) for _ in range(131_072)]


def grant(book: LeaseBook, blocks: int) -> str:
    """Grant as D does: vLLM's parameters beside ours, blocks by reference."""
    number = next(NUMBERS)
    pinned = [POOL[(number * 7 + place) % len(POOL)] for place in range(blocks)]
    ids = [block.block_id for block in pinned]
    name = f"{number:016x}"
    handle: dict[str, Any] = {
        "do_remote_prefill": False,
        "do_remote_decode": True,
        "remote_block_ids": [ids],
        "remote_engine_id": "engine",
        "remote_request_id": f"chatcmpl-{number:032x}",
        "remote_host": "host",
        "remote_port": 5600,
        "tp_size": 1,
        "remote_num_tokens": blocks * BLOCK_TOKENS,
    }
    book.grant(
        id=name,
        conversation=f"{number:032x}",
        tokens=blocks * BLOCK_TOKENS,
        block_ids=[ids],
        digests=digests_of(TOKENS, blocks * BLOCK_TOKENS, b""),
        handle=handle,
        divisible=True,
        pinned=pinned,
    )
    return name


def memory(blocks: int, count: int) -> float:
    """Bytes per lease, the kept event of its grant included."""
    gc.collect()
    tracemalloc.start()
    book = new_book()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(count):
        grant(book, blocks)
    gc.collect()
    per_lease = (tracemalloc.get_traced_memory()[0] - before) / count
    tracemalloc.stop()
    return per_lease


def timed(act: Callable[[], object], rounds: int = ROUNDS) -> str:
    """Median and lowest time of a call."""
    spent = []
    for _ in range(rounds):
        started = time.perf_counter()
        act()
        spent.append(time.perf_counter() - started)
    return f"{statistics.median(spent) * 1e6:10.1f} us, lowest {min(spent) * 1e6:10.1f}"


def calls(count: int) -> None:
    """Times of calls with `count` leases there."""
    book = new_book()
    names = [grant(book, 1) for _ in range(count)]
    random.Random(2).shuffle(names)
    left = iter(names)
    few = min(1000, count // 4)
    since = max(0, book.sequence - 16_384)
    last = book.sequence - 1
    acts: dict[str, tuple[Callable[[], object], int]] = {
        "listing": (book.listing, ROUNDS),
        "events, all kept": (lambda: book.events(since), ROUNDS),
        "events, the last": (lambda: book.events(last), few),
        "sweep, nothing due": (book.sweep, few),
        "grant": (lambda: grant(book, 1), few),
        "claim": (lambda: book.claim(next(left), "read"), few),
        "release": (lambda: book.release(next(left)), few),
        "take_ended": (book.take_ended, few),
        "reclaim": (book.reclaim, few),
    }
    assert len(json.loads(book.listing())["leases"]) == count
    say(f"{count} leases, a listing of {len(book.listing())} bytes")
    for what, (act, rounds) in acts.items():
        say(f"    {what:20}{timed(act, rounds)}")
    started = time.perf_counter()
    reclaimed = sum(1 for _ in iter(book.reclaim, None))
    each = (time.perf_counter() - started) / reclaimed * 1e6
    say(f"    {'reclaim of all, each':20}{each:10.1f} us")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.parse_args()
    for blocks, count in ((1, 5000), (64, 2000), (512, 1000), (8192, 100)):
        found = memory(blocks, count)
        goal = 40 * blocks + 1024
        say(f"{blocks:5} blocks: {found:9.0f} bytes per lease (goal {goal})")
    for count in (100, 10_000, 100_000):
        calls(count)


if __name__ == "__main__":
    main()
