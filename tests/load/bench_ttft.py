"""Time to the first token of later turns: ours against vLLM's own connector, in turn.

    python tests/load/bench_ttft.py [--rounds 30]

Two pairs run at once; each round sends the same turn to both, the first of them by turns, so that
what else the machine does falls on both alike. Times are P leg plus the first piece of D's stream,
as a router waits for them. Bound: two pairs of CPU engines, 13 GB.
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
        self.legs: list[tuple[float, float]] = []

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


async def compare(ours: Side, plain: Side, history: int, rounds: int) -> None:
    rng = Random(history)
    spent: dict[str, list[tuple[float, float]]] = {"ours": [], "plain": [], "ours, no handle": []}
    for number in range(rounds):
        prompt, new = drawn(rng, history), drawn(rng, NEW_TOKENS)
        sides = [("ours", ours), ("plain", plain)]
        for name, side in sides if number % 2 else reversed(sides):
            held, handle = await side.hold(prompt)
            spent[name].append(await side.first_token(held + new, handle))
        spent["ours, no handle"].append(await ours.first_token(prompt + new, FIRST_TURN))
    medians = {
        name: [statistics.median(values) * 1e3 for values in zip(*legs, strict=True)]
        for name, legs in spent.items()
    }
    sums = {
        name: statistics.median(sum(legs) for legs in values) * 1e3
        for name, values in spent.items()
    }
    ratios = [
        sum(one) / sum(other) for one, other in zip(spent["ours"], spent["plain"], strict=True)
    ]
    low, _, high = statistics.quantiles(ratios, n=4)
    for name, (p_ms, d_ms) in medians.items():
        say(f"| {history} | {name} | {p_ms:.1f} | {d_ms:.1f} | {sums[name]:.1f} |")
    say(
        f"| {history} | ours / plain, of each round | | | {statistics.median(ratios):.3f} "
        f"({low:.3f} to {high:.3f}) |"
    )


async def measure(pairs: list[Pair], rounds: int) -> None:
    async with aiohttp.ClientSession() as session:
        ours, plain = (Side(session, pair) for pair in pairs)
        say("| history | connector | P leg ms | D leg to first token ms | sum ms |")
        say("|---|---|---|---|---|")
        for history in HISTORIES:
            await compare(ours, plain, history, 3)  # handshakes and first allocations
        say("warm:")
        for history in HISTORIES:
            await compare(ours, plain, history, rounds)


def pair(connector: Connector, folder: Path) -> Pair:
    engines = install.ensure(say)
    options = PairOptions(
        connector=connector,
        prefill=RoleOptions(args=(NO_PREFIX_CACHING,)),
        decode=RoleOptions(extra={"decoder_kv_blocks_ttl": 20}),
    )
    return Pair(engines, model.ensure(engines, say), folder, options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    args = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="disaggpair-ttft-") as one,
        tempfile.TemporaryDirectory(prefix="disaggpair-ttft-") as other,
        pair("DisaggPair", Path(one)) as ours,
        pair("Nixl", Path(other)) as plain,
    ):
        asyncio.run(measure([ours, plain], args.rounds))


if __name__ == "__main__":
    main()
