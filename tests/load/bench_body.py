"""How long a body holds up everybody else: pauses of the event loop while it is served or refused.

    python tests/load/bench_body.py [--megabytes 10] [--turns 10] [--only WORD]

Bodies of one size with text as clients send it, and bodies whose structure is the work: up to
512 KB, where the loop itself may read, and of the one size.

The router is in this process, engines and client are not. A callback runs every millisecond; a
pause is what lies between two of them, in wall time and in processor time of the loop's thread.
Wall time also counts what other processes took, so on a busy machine the second is the router's.

Bound: loopback, so many turns of each shape.
"""

import argparse
import asyncio
import logging
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import orjson
import uvloop

from disaggpair_bed.load import routers
from disaggpair_bed.load.exchange import Exchange, head_of
from disaggpair_bed.load.generator import PATH
from disaggpair_bed.load.numbers import load, median, say
from disaggpair_router.config import RouterConfig
from disaggpair_router.server import running_router

_BEAT_S = 0.001


class Heart:
    """Measures pauses of the running loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.reset()
        self._beat()

    def reset(self) -> None:
        self.wall = self.cpu = 0.0
        self._last = (time.perf_counter(), time.thread_time())

    def _beat(self) -> None:
        now = (time.perf_counter(), time.thread_time())
        self.wall = max(self.wall, now[0] - self._last[0])
        self.cpu = max(self.cpu, now[1] - self._last[1])
        self._last = now
        self._loop.call_later(_BEAT_S, self._beat)


@dataclass(frozen=True, slots=True)
class Shape:
    """A body and where it goes."""

    body: bytes
    path: str = PATH


def shapes(size: int) -> dict[str, Shape]:
    """Bodies by what they are."""
    return {**_texts(size), **_small(size=500_000), **_structures(size)}


def _texts(size: int) -> dict[str, Shape]:
    text = 'def f(x): return "lorem ipsum"\n'

    def body(each: int) -> Shape:
        content = (text * (each // len(text) + 1))[:each]
        messages = [{"role": "user", "content": content} for _ in range(size // each)]
        return Shape(orjson.dumps({"model": "toy", "messages": messages, "stream": True}))

    return {
        "one message": body(size),
        "messages of 4 KB": body(4096),
        "messages of 600 bytes": body(600),
        "messages of 100 bytes": body(100),
    }


def _small(size: int) -> dict[str, Shape]:
    return {
        "small: messages {}": _list(size, "messages", b"{}"),
        "small: input {}": _list(size, "input", b"{}", "/v1/responses"),
        "small: extra_body []": _list(size, "extra_body", b"[]"),
        "small: prompt of ids": _list(size, "prompt", b"1", "/v1/completions"),
    }


def _structures(size: int) -> dict[str, Shape]:
    few = {"model": "toy", "messages": [{"role": "user", "content": "a"}]}
    inner = [0] * 32_000
    members = {f"m{number}": inner for number in range(size // 65_000)}
    many = {f"m{number}": 0 for number in range(size // 12)}
    deep = b'{"model": "toy", "extra_body": ' + b"[" * 600 + b"]" * 600 + b"}"
    texts = {f"m{number}": "a" * 64_000 for number in range(size // 65_000)}
    return {
        "texts of 64 KB": Shape(orjson.dumps({**few, **texts})),
        "1.9 million ids": _list(3_800_000, "prompt", b"1", "/v1/completions"),
        "members of 64 KB": Shape(orjson.dumps({**few, **members})),
        "members of 12 bytes": Shape(orjson.dumps({**few, **many})),
        "messages {}": _list(size, "messages", b"{}"),
        "tokenize, members of 64 KB": Shape(orjson.dumps({**few, **members}), "/tokenize"),
        "tokenize, lists": _list(size, "extra_body", b"[]", "/tokenize"),
        "tokenize, 600 deep": Shape(deep, "/tokenize"),
    }


def _list(size: int, name: str, item: bytes, path: str = PATH) -> Shape:
    items = b",".join([item] * (size // (len(item) + 1)))
    return Shape(b'{"model": "toy", "%s": [%s]}' % (name.encode(), items), path)


async def measure(args: argparse.Namespace, config: RouterConfig) -> None:
    # The client's bytes come from this process, too, but were made before.
    say("| body | MB | status | longest pause, ms: median, worst | its processor time | TTFB, ms |")
    say("|---|---|---|---|---|---|")
    loop = asyncio.get_running_loop()
    async with running_router(config) as router:
        await asyncio.sleep(1.0)
        heart = Heart()
        for what, shape in shapes(args.megabytes * 2**20).items():
            if args.only not in what:
                continue
            body = shape.body
            _, exchange = await loop.create_connection(Exchange, "127.0.0.1", router.port)
            walls, cpus, firsts = [], [], []
            status = 0
            for _ in range(args.turns + 1):
                ended: asyncio.Future[int] = loop.create_future()
                await asyncio.sleep(0.05)
                heart.reset()
                began = time.perf_counter()
                exchange.ask(head_of(shape.path, len(body)), body, ended.set_result)
                status = await ended
                if status not in (200, 400):
                    raise RuntimeError(f"status {status}: {exchange.body()[:300]!r}")
                walls.append(1e3 * heart.wall)
                cpus.append(1e3 * heart.cpu)
                firsts.append(1e3 * (exchange.first_at - began))
            exchange.close()
            cells = [what, f"{len(body) / 1e6:.1f}", str(status)]
            # The first turn starts what later ones use.
            cells += [f"{median(walls[1:]):.1f}, {max(walls[1:]):.1f}"]
            cells += [f"{median(cpus[1:]):.1f}, {max(cpus[1:]):.1f}", f"{median(firsts[1:]):.0f}"]
            say(f"| {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=10)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--only", default="", help="of the bodies with this in their names")
    args = parser.parse_args()
    logging.disable(logging.INFO)
    with (
        tempfile.TemporaryDirectory(prefix="load-") as folder,
        routers.engines(Path(folder)) as (prefill, decode),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        decodes = [f"http://127.0.0.1:{decode}"]
        fields = routers.configuration(prefill, decodes, port=0, tokenize=True)
        runner.run(measure(args, RouterConfig.model_validate(fields)))
    say(f"\n{load()}")


if __name__ == "__main__":
    main()
