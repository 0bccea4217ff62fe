"""How long digests of a long prompt take, for several chunk lengths and beside a busy thread.

    .venv/bin/python tests/load/bench_digest.py

Bound: one process, a few seconds.
"""

import argparse
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from disaggpair_connector import digest

VOCABULARY = 151_936
ROUNDS = 51


def timed(act: Callable[[], object]) -> str:
    """Median and lowest time of ROUNDS runs."""
    spent = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        act()
        spent.append(time.perf_counter() - started)
    return f"{statistics.median(spent) * 1e3:7.2f} ms, lowest {min(spent) * 1e3:7.2f}"


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


@contextmanager
def busy_thread() -> Iterator[None]:
    """Another thread that wants the interpreter lock at all times."""
    ended = threading.Event()

    def work() -> None:
        while not ended.is_set():
            sum(range(100))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def of_chunk(ids: list[int], chunk: int) -> str:
    """The time with another chunk length."""
    kept = digest.CHUNK_TOKENS, digest._CHUNK_BYTES
    digest.CHUNK_TOKENS, digest._CHUNK_BYTES = chunk, chunk * 4  # type: ignore[misc]  # final, but for this comparison
    try:
        return timed(lambda: digest.digests_of(ids, len(ids), b""))
    finally:
        digest.CHUNK_TOKENS, digest._CHUNK_BYTES = kept  # type: ignore[misc]  # final, but for this comparison


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=131_072)
    count = parser.parse_args().tokens
    draw = random.Random(1)
    ids = [draw.randrange(VOCABULARY) for _ in range(count)]
    held = digest.digests_of(ids, count, b"")
    media = [digest.Media(place, bytes(16)) for place in range(0, count, 4096)]

    def fed() -> None:
        digests = digest.TokenDigests(b"")
        for start in range(0, count, 1000):
            digests.extend(ids[start : start + 1000])
        digests.at(count)

    say(f"{ROUNDS} runs, {count} tokens, chunks of {digest.CHUNK_TOKENS}")
    for what, act in {
        "digests_of": lambda: digest.digests_of(ids, count, b""),
        "digests_of, media every 4096": lambda: digest.digests_of(ids, count, b"", media),
        "common_tokens": lambda: digest.common_tokens(ids, b"", (), held),
        "in pieces of 1000": fed,
    }.items():
        say(f"{what:36}{timed(act)}")
    for name, beside in (("alone", nullcontext()), ("beside a busy thread", busy_thread())):
        with beside:
            for chunk in (128, 256, 512, 1024):
                say(f"{f'chunks of {chunk}, {name}':36}{of_chunk(ids, chunk)}")


if __name__ == "__main__":
    main()
