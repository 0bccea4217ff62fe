"""`disaggpair-bed hostile`."""

import argparse
import tempfile
import time
from pathlib import Path

from disaggpair_bed.cpu import install, model
from disaggpair_bed.hostile.distribution import TOLERANCE
from disaggpair_bed.hostile.record import Record
from disaggpair_bed.hostile.runner import Plan
from disaggpair_bed.hostile.runner import run as play


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the run."""
    parser.description = "Do to a pair of real engines what accidents do; print a table."
    parser.add_argument("--connector", choices=["DisaggPair", "Nixl"], default="DisaggPair")
    parser.add_argument("--turns", type=int, default=500, help="turns to play (default 500)")
    parser.add_argument("--seed", type=int, default=0, help="decides them (default 0)")
    parser.add_argument(
        "--prefix-caching", choices=["on", "off"], default="off", help="of P (default off)"
    )
    parser.add_argument("--ttl", type=float, default=Plan.ttl_s, help="seconds that D holds a turn")
    for role in ("prefill", "decode"):
        default = getattr(Plan, f"{role}_blocks")
        text = f"its cache, in blocks of 32 tokens (default {default})"
        parser.add_argument(f"--{role}-blocks", type=int, default=default, help=text)
    parser.add_argument("--logs", type=Path, help="folder for the engines' logs")


def run(args: argparse.Namespace) -> int:
    """Play the turns and print what came of them; 0 only without a fault."""
    install.require_memory()
    engines = install.ensure(_say)
    folder = args.logs or Path(tempfile.mkdtemp(prefix="disaggpair-hostile-"))
    folder.mkdir(parents=True, exist_ok=True)
    _say(f"logs: {folder}")
    plan = Plan(
        connector=args.connector,
        turns=args.turns,
        seed=args.seed,
        prefix_caching=args.prefix_caching == "on",
        ttl_s=args.ttl,
        hung_s=args.ttl + 15,
        prefill_blocks=args.prefill_blocks,
        decode_blocks=args.decode_blocks,
    )
    record = Record()
    begun = time.monotonic()
    try:
        still_held = play(plan, engines, model.ensure(engines, _say), folder, _say, record)
    finally:
        _say(f"\n{plan.connector}, P's prefix cache {args.prefix_caching}, seed {plan.seed}")
        _say(record.table())
        _say(
            f"tolerance {TOLERANCE}, {sum(map(len, record.distances.values()))} right turns "
            f"compared, {time.monotonic() - begun:.0f} s"
        )
    _say(f"cache still in use after all leases: P {still_held[0]:.4f}, D {still_held[1]:.4f}")
    return 1 if record.total.faults or any(still_held) else 0


def _say(line: str) -> None:
    print(line, flush=True)
