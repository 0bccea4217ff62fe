"""What requests wait on a D that is full of finished turns: ours, or vLLM's own connector.

    python tests/load/bench_stall.py [--connector Nixl] [--ttl 20]

Bound: one pair of CPU engines; with the plain connector every request may wait for --ttl.
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from disaggpair_bed.cpu import install, model
from disaggpair_bed.cpu.pair import Pair, PairOptions
from disaggpair_bed.hostile import stall


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--connector", choices=["DisaggPair", "Nixl"], default="DisaggPair")
    parser.add_argument("--ttl", type=float, default=3600, help="seconds that D holds a turn")
    args = parser.parse_args()
    engines = install.ensure(say)
    options = PairOptions(connector=args.connector, decode=stall.narrow_decode(args.ttl))
    with (
        tempfile.TemporaryDirectory(prefix="disaggpair-stall-") as folder,
        Pair(engines, model.ensure(engines, say), Path(folder), options) as pair,
    ):
        asyncio.run(stall.observe(pair, max(60.0, 3 * min(args.ttl, 60)), say))


if __name__ == "__main__":
    main()
