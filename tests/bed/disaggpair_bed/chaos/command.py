"""`disaggpair-bed chaos`."""

import argparse
import asyncio
import logging
import tempfile
import time
from pathlib import Path

from disaggpair_bed.chaos.real.run import RealPlan
from disaggpair_bed.chaos.real.run import play as play_real
from disaggpair_bed.chaos.record import Record
from disaggpair_bed.chaos.run import Plan, play
from disaggpair_bed.cpu import install, model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the run."""
    parser.description = (
        "Let clients talk to routers in front of engines while these are killed, "
        "frozen and replaced; compare every answer with what it has to be; print a table."
    )
    turns = f"turns (default {Plan.turns}, {RealPlan.turns} on real engines)"
    parser.add_argument("--turns", type=int, help=turns)
    parser.add_argument("--seed", type=int, default=0, help="decides them; odd: P has no cache")
    parser.add_argument(
        "--engines", choices=["simulated", "real"], default="simulated", help="default simulated"
    )
    parser.add_argument("--acts", type=int, default=RealPlan.acts, help="done to real engines")
    parser.add_argument("--logs", type=Path, help="folder for the logs of real engines")
    for name, default in (("prefills", 2), ("decodes", 2), ("routers", 3), ("clients", 6)):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default {default}")
    parser.add_argument(
        "--ttl", type=float, default=Plan.ttl_s, help="seconds that D keeps a lease"
    )


def run(args: argparse.Namespace) -> int:
    """Run it and print what came of it; 0 only without a fault."""
    logging.disable(logging.CRITICAL)
    began = time.monotonic()
    record = _real(args) if args.engines == "real" else _simulated(args)
    _say(f"\n{record.turns} turns, seed {args.seed}, {time.monotonic() - began:.0f} s\n")
    _say(record.table())
    for fault in record.faults[:50]:
        _say(f"FAULT {fault}")
    return 1 if record.faults else 0


def _real(args: argparse.Namespace) -> Record:
    install.require_memory()
    engines = install.ensure(_say)
    folder = args.logs or Path(tempfile.mkdtemp(prefix="disaggpair-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    _say(f"logs: {folder}")
    plan = RealPlan(turns=args.turns or RealPlan.turns, acts=args.acts, seed=args.seed)
    return play_real(plan, engines, model.ensure(engines, _say), folder, _say)


def _simulated(args: argparse.Namespace) -> Record:
    plan = Plan(
        turns=args.turns or Plan.turns,
        seed=args.seed,
        prefills=args.prefills,
        decodes=args.decodes,
        routers=args.routers,
        clients=args.clients,
        ttl_s=args.ttl,
    )
    return asyncio.run(play(plan, _say))


def _say(line: str) -> None:
    print(line, flush=True)
