"""What a D that only holds leases takes of the processor: ours and vLLM's own connector.

    python tests/load/bench_idle.py [--seconds 20] [--calm]

Each engine starts with one request done; then D holds five finished turns and nothing is asked.
Printed are processor seconds per second of each process. Bound: one pair of CPU engines at a time.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path
from random import Random

import aiohttp

from disaggpair_bed.cpu import install, model
from disaggpair_bed.cpu.engine import Engine
from disaggpair_bed.cpu.options import Connector
from disaggpair_bed.cpu.pair import Pair, PairOptions
from disaggpair_bed.hostile.client import FIRST_TURN, Client
from disaggpair_bed.hostile.conversation import drawn

LEASES = 5
SETTLE_S = 5.0
HUNG_S = 120.0


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def turns(pair: Pair, count: int) -> None:
    """First turns of so many conversations."""
    rng = Random(count)
    async with aiohttp.ClientSession() as session:
        p = Client(session, pair.prefill.url, HUNG_S)
        d = Client(session, pair.decode.url, HUNG_S)
        for _ in range(count):
            prompt = drawn(rng, 300)
            p_leg = await p.complete(prompt, 1, params=FIRST_TURN)
            d_leg = await d.complete(prompt, 8, params=p_leg.params)
            if not d_leg.answered:
                raise RuntimeError(str(d_leg))


def load(engine: Engine, seconds: float) -> dict[str, float]:
    """Processor seconds per second, by process."""
    time.sleep(SETTLE_S)
    before = {one.pid: one.cpu_s for one in engine.usage()}
    begun = time.monotonic()
    time.sleep(seconds)
    spent_s = time.monotonic() - begun
    return {
        one.name: (one.cpu_s - before[one.pid]) / spent_s
        for one in engine.usage()
        if one.pid in before and one.name.startswith(("VLLM", "python vllm"))
    }


def measure(connector: Connector, calm: bool, seconds: float, folder: Path) -> None:
    engines = install.ensure(say)
    # The longest lease that vLLM's connector has to end is over before D is called empty.
    options = PairOptions(connector=connector, calm=calm)
    with Pair(engines, model.ensure(engines, say), folder, options) as pair:
        found = {"D, fresh": load(pair.decode, seconds)}
        asyncio.run(turns(pair, LEASES))
        found[f"D, {LEASES} turns held"] = load(pair.decode, seconds)
        found[f"P, {LEASES} turns done"] = load(pair.prefill, seconds)
    for what, loads in found.items():
        named = ", ".join(f"{name} {value:.3f}" for name, value in loads.items())
        state = "calmed" if calm else "as it is"
        say(f"| {connector} | {state} | {what} | {sum(loads.values()):.3f} | {named} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--connector", choices=["DisaggPair", "Nixl"], help="only this one")
    parser.add_argument("--calm", choices=["yes", "no"], help="only so")
    args = parser.parse_args()
    say("| connector | engines | state | CPU s per s | of which |\n|---|---|---|---|---|")
    for calm in (True, False):
        for connector in ("DisaggPair", "Nixl"):
            if args.connector in (None, connector) and args.calm in (None, "yes" if calm else "no"):
                with tempfile.TemporaryDirectory(prefix="disaggpair-idle-") as folder:
                    measure(connector, calm, args.seconds, Path(folder))


if __name__ == "__main__":
    main()
