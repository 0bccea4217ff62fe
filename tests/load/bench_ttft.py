"""Time to the first token of later turns: ours against vLLM's own connector, in turn.

    python tests/load/bench_ttft.py [--batches 4] [--turns 8]

Two pairs are up at once and serve the same turns, a batch of one and then a batch of the other, so
that what else the machine does falls on both alike. Between the batches the D of vLLM's connector
gives its blocks back: while it holds any it steps all the time, and takes a core from whoever is
measured. Times are P leg plus the first piece of D's stream, as a router waits for them. Bound: two
pairs of CPU engines, 13 GB.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import aiohttp

from disaggpair_bed.cpu import install, model
from disaggpair_bed.cpu.options import NO_PREFIX_CACHING, Connector
from disaggpair_bed.cpu.pair import Pair, PairOptions, RoleOptions
from disaggpair_bed.hostile.client import FIRST_TURN, Client
from disaggpair_bed.hostile.conversation import Tokens, drawn

HUNG_S = 120.0
TTL_S = 10
"""Until vLLM's connector gives blocks back; P reads them within 5 s less."""
HISTORIES = (500, 1500, 3000)
NEW_TOKENS = 100
ANSWER_TOKENS = 16


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class Side:
    """One of the two pairs."""

    def __init__(self, session: aiohttp.ClientSession, pair: Pair) -> None:
        self.p = Client(session, pair.prefill.url, HUNG_S)
        self.d = Client(session, pair.decode.url, HUNG_S)

    async def hold(self, prompt: Tokens) -> tuple[Tokens, Any]:
        """A first turn; its history and its handle."""
        p_leg = await self.p.complete(prompt, 1, params=FIRST_TURN)
        d_leg = await self.d.complete(prompt, ANSWER_TOKENS, params=p_leg.params)
        return prompt + d_leg.tokens, d_leg.params

    async def first_token(self, prompt: Tokens, handle: Any) -> tuple[float, float]:
        """Seconds of the P leg, and from then to D's first token."""
        p_leg = await self.p.complete(prompt, 1, params=handle)
        d_leg = await self.d.streamed(prompt, ANSWER_TOKENS, params=p_leg.params)
        return p_leg.seconds, d_leg.arrivals_s[0]


Legs = list[tuple[float, float]]
"""Seconds of the P leg and of the D leg to its first token."""


async def batch(side: Side, history: int, turns: int, rng: Random) -> tuple[Legs, Legs]:
    """Second turns of so many conversations: with a handle, and without."""
    held_legs, cold_legs = [], []
    for _ in range(turns):
        prompt, new = drawn(rng, history), drawn(rng, NEW_TOKENS)
        held, handle = await side.hold(prompt)
        held_legs.append(await side.first_token(held + new, handle))
        cold_legs.append(await side.first_token(prompt + new, FIRST_TURN))
    return held_legs, cold_legs


def row(history: int, name: str, legs: Legs) -> str:
    p_ms, d_ms = (statistics.median(values) * 1e3 for values in zip(*legs, strict=True))
    low, middle, high = statistics.quantiles([1e3 * sum(both) for both in legs], n=4)
    return (
        f"| {history} | {name} | {p_ms:.1f} | {d_ms:.1f} | {middle:.1f} ({low:.1f}, {high:.1f}) |"
    )


async def compare(sides: dict[str, Side], history: int, batches: int, turns: int) -> None:
    spent: dict[str, tuple[Legs, Legs]] = {name: ([], []) for name in sides}
    for number in range(batches):
        for name, side in sides.items():
            await asyncio.sleep(TTL_S + 2)
            for all_legs, legs in zip(
                spent[name], await batch(side, history, turns, Random(number)), strict=True
            ):
                all_legs += legs
    for name, (held_legs, cold_legs) in spent.items():
        say(row(history, name, held_legs))
        say(row(history, f"{name}, no handle", cold_legs))


async def measure(pairs: dict[str, Pair], batches: int, turns: int) -> None:
    async with aiohttp.ClientSession() as session:
        sides = {name: Side(session, pair) for name, pair in pairs.items()}
        for side in sides.values():  # handshakes and first allocations
            for history in HISTORIES:
                await batch(side, history, 3, Random(0))
        say("| history | connector | P leg ms | D leg to first token ms | sum ms (quartiles) |")
        say("|---|---|---|---|---|")
        for history in HISTORIES:
            await compare(sides, history, batches, turns)


def pair(connector: Connector, folder: Path) -> Pair:
    engines = install.ensure(say)
    options = PairOptions(
        connector=connector,
        prefill=RoleOptions(args=(NO_PREFIX_CACHING,)),
        decode=RoleOptions(extra={"decoder_kv_blocks_ttl": TTL_S}),
    )
    return Pair(engines, model.ensure(engines, say), folder, options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--turns", type=int, default=8)
    args = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="disaggpair-ttft-") as one,
        tempfile.TemporaryDirectory(prefix="disaggpair-ttft-") as other,
        pair("DisaggPair", Path(one)) as ours,
        pair("Nixl", Path(other)) as plain,
    ):
        asyncio.run(measure({"ours": ours, "vLLM's": plain}, args.batches, args.turns))


if __name__ == "__main__":
    main()
