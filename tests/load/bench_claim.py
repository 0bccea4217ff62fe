"""How long a router waits for a claim while D answers others, both engines on the same cores.

    python tests/load/bench_claim.py [--claims 300] [--streams 4]

Each sample is one HTTP request on a kept connection: list, claim, and release of a claimed lease.
Bound: one pair of CPU engines.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path
from random import Random

import aiohttp

from disaggpair_bed.cpu import install, model
from disaggpair_bed.cpu.leases import LEASE_ENVIRONMENT, Leases
from disaggpair_bed.cpu.pair import Pair, PairOptions, RoleOptions
from disaggpair_bed.hostile.client import FIRST_TURN, Client
from disaggpair_bed.hostile.conversation import drawn
from disaggpair_connector import contract

HUNG_S = 300.0
HELD = 40


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def fill(p: Client, d: Client, rng: Random) -> None:
    """As many finished turns as `HELD`."""
    for _ in range(HELD):
        prompt = drawn(rng, 70)
        p_leg = await p.complete(prompt, 1, params=FIRST_TURN)
        await d.complete(prompt, 2, params=p_leg.params)


async def stream(d: Client, rng: Random, ended: asyncio.Event) -> None:
    """Answers without an end."""
    while not ended.is_set():
        await d.streamed(drawn(rng, 200), 400)


async def sample(p: Client, d: Client, leases: Leases, rng: Random, count: int) -> None:
    """Print percentiles of `count` claims."""
    spent: dict[str, list[float]] = {"list": [], "claim": [], "release": []}
    while len(spent["claim"]) < count:
        await fill(p, d, rng)
        begun = time.perf_counter()
        listed = (await leases.listing())["leases"]
        spent["list"].append(time.perf_counter() - begun)
        for lease in listed:
            begun = time.perf_counter()
            claimed = await leases.claim(lease["id"])
            spent["claim"].append(time.perf_counter() - begun)
            if not isinstance(claimed, dict):
                raise RuntimeError(f"the claim was answered with {claimed}")
            begun = time.perf_counter()
            await leases.release(lease["id"])
            spent["release"].append(time.perf_counter() - begun)
            await asyncio.sleep(0.02)
    for what, values in spent.items():
        cuts = statistics.quantiles(values, n=100, method="inclusive")
        say(
            f"| {what} | {len(values)} | {cuts[49] * 1e3:.2f} | {cuts[98] * 1e3:.2f} | "
            f"{max(values) * 1e3:.2f} |"
        )


async def measure(pair: Pair, claims: int, streams: int) -> None:
    rng = Random(3)
    async with aiohttp.ClientSession() as session:
        p = Client(session, pair.prefill.url, HUNG_S)
        d = Client(session, pair.decode.url, HUNG_S)
        leases = Leases(session, pair.decode)
        for count in (0, streams):
            say(f"\n{count} streams on D\n| request | count | p50 ms | p99 ms | max ms |")
            say("|---|---|---|---|---|")
            ended = asyncio.Event()
            async with asyncio.TaskGroup() as group:
                for _ in range(count):
                    group.create_task(stream(d, rng, ended))
                await sample(p, d, leases, rng, claims)
                ended.set()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--claims", type=int, default=300)
    parser.add_argument("--streams", type=int, default=4)
    args = parser.parse_args()
    engines = install.ensure(say)
    options = PairOptions(
        decode=RoleOptions(environment=LEASE_ENVIRONMENT, extra={contract.EXTRA_DECODE_TTL: 3600})
    )
    with (
        tempfile.TemporaryDirectory(prefix="disaggpair-claim-") as folder,
        Pair(engines, model.ensure(engines, say), Path(folder), options) as pair,
    ):
        asyncio.run(measure(pair, args.claims, args.streams))


if __name__ == "__main__":
    main()
