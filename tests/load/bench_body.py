"""How long a large body holds up everybody else: pauses of the event loop while it is served.

    python tests/load/bench_body.py [--megabytes 10] [--turns 10]

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


def shapes(size: int) -> dict[str, bytes]:
    """Bodies of one size."""
    text = 'def f(x): return "lorem ipsum"\n'

    def body(each: int) -> bytes:
        content = (text * (each // len(text) + 1))[:each]
        messages = [{"role": "user", "content": content} for _ in range(size // each)]
        return orjson.dumps({"model": "toy", "messages": messages, "stream": True})

    return {"one message": body(size), "of 4 KB": body(4096), "of 100 bytes": body(100)}


async def measure(args: argparse.Namespace, config: RouterConfig) -> None:
    # The client's bytes come from this process, too, but were made before.
    say("| messages | MB | longest pause, ms: median, worst | its processor time | TTFB, ms |")
    say("|---|---|---|---|---|")
    loop = asyncio.get_running_loop()
    async with running_router(config) as router:
        await asyncio.sleep(1.0)
        heart = Heart()
        for what, body in shapes(args.megabytes * 2**20).items():
            _, exchange = await loop.create_connection(Exchange, "127.0.0.1", router.port)
            walls, cpus, firsts = [], [], []
            for _ in range(args.turns + 1):
                ended: asyncio.Future[int] = loop.create_future()
                await asyncio.sleep(0.05)
                heart.reset()
                began = time.perf_counter()
                exchange.ask(head_of(PATH, len(body)), body, ended.set_result)
                status = await ended
                if status != 200:
                    raise RuntimeError(f"status {status}: {exchange.body()[:300]!r}")
                walls.append(1e3 * heart.wall)
                cpus.append(1e3 * heart.cpu)
                firsts.append(1e3 * (exchange.first_at - began))
            exchange.close()
            cells = [what, f"{len(body) / 1e6:.1f}"]
            # The first turn starts what later ones use.
            cells += [f"{median(walls[1:]):.1f}, {max(walls[1:]):.1f}"]
            cells += [f"{median(cpus[1:]):.1f}, {max(cpus[1:]):.1f}", f"{median(firsts[1:]):.0f}"]
            say(f"| {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=10)
    parser.add_argument("--turns", type=int, default=10)
    args = parser.parse_args()
    logging.disable(logging.INFO)
    with (
        tempfile.TemporaryDirectory(prefix="load-") as folder,
        routers.engines(Path(folder)) as (prefill, decode),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        fields = routers.configuration(prefill, [f"http://127.0.0.1:{decode}"], port=0)
        runner.run(measure(args, RouterConfig.model_validate(fields)))
    say(f"\n{load()}")


if __name__ == "__main__":
    main()
