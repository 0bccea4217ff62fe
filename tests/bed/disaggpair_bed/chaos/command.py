"""`disaggpair-bed chaos`."""

import argparse
import asyncio
import logging
import time

from disaggpair_bed.chaos.run import Plan, play


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the run."""
    parser.description = (
        "Let clients talk to routers in front of simulated engines while these are killed, "
        "frozen and replaced; compare every answer with what it has to be; print a table."
    )
    parser.add_argument("--turns", type=int, default=Plan.turns, help="turns (default 20000)")
    parser.add_argument("--seed", type=int, default=0, help="decides them; odd: P has no cache")
    for name, default in (("prefills", 2), ("decodes", 2), ("routers", 3), ("clients", 6)):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default {default}")
    parser.add_argument(
        "--ttl", type=float, default=Plan.ttl_s, help="seconds that D keeps a lease"
    )


def run(args: argparse.Namespace) -> int:
    """Run it and print what came of it; 0 only without a fault."""
    logging.disable(logging.CRITICAL)
    plan = Plan(
        turns=args.turns,
        seed=args.seed,
        prefills=args.prefills,
        decodes=args.decodes,
        routers=args.routers,
        clients=args.clients,
        ttl_s=args.ttl,
    )
    began = time.monotonic()
    record = asyncio.run(play(plan, _say))
    _say(f"\n{record.turns} turns, seed {plan.seed}, {time.monotonic() - began:.0f} s\n")
    _say(record.table())
    for fault in record.faults[:50]:
        _say(f"FAULT {fault}")
    return 1 if record.faults else 0


def _say(line: str) -> None:
    print(line, flush=True)
