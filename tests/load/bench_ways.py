"""Ways of a turn on simulated engines with measured costs: FULL, PULL, DIRECT, chosen, hindsight.

    .venv/bin/python tests/load/bench_ways.py [--turns 1500] [--seed 1]

Virtual time, one process, a few minutes; the same arguments give the same table.
"""

import argparse
import sys
from collections.abc import Callable

from disaggpair_bed.ways.costs import Machines
from disaggpair_bed.ways.policies import Always, Chooser, Hindsight
from disaggpair_bed.ways.report import figures
from disaggpair_bed.ways.traffic import conversations
from disaggpair_bed.ways.world import Policy, World

BUDGET_S = 0.1
LOADS: dict[str, tuple[float, int, Machines]] = {
    "0.5 turns/s": (0.5, 1, Machines()),
    "2 turns/s": (2.0, 1, Machines()),
    "2 turns/s, bursts of 8": (2.0, 8, Machines()),
    "4 turns/s": (4.0, 1, Machines()),
    "8 turns/s": (8.0, 1, Machines()),
    "2 turns/s, a quarter of the work": (2.0, 1, Machines(p_work=0.25, d_work=0.25)),
    "2 turns/s, P half as fast": (2.0, 1, Machines(p_work=2.0)),
    "2 turns/s, D half as fast": (2.0, 1, Machines(d_work=2.0)),
    "2 turns/s, reads of block 16": (2.0, 1, Machines(read=7.0)),
}
POLICIES: dict[str, Callable[[], Policy]] = {
    "FULL": lambda: Always("FULL"),
    "PULL": lambda: Always("PULL"),
    "DIRECT": lambda: Always("DIRECT"),
    "chosen": Chooser,
    "hindsight": lambda: Hindsight(BUDGET_S),
}


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=1_500)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    say(
        "| load | way | TTFT mean | p90 | gap mean | p99 | gaps over budget | above the best | "
        "FULL / PULL / DIRECT |"
    )
    say("|---|---|---|---|---|---|---|---|---|")
    for load, (per_s, burst, machines) in LOADS.items():
        traffic = conversations(args.seed, turns=args.turns, per_s=per_s, burst=burst)
        for name, policy in POLICIES.items():
            judged = name == "chosen"
            seen = figures(World(traffic, policy(), machines, judged).run(), BUDGET_S)
            above = "" if seen.regret is None else f"{seen.regret:.1%}"
            ways = " / ".join(str(seen.ways.get(way, 0)) for way in ("FULL", "PULL", "DIRECT"))
            say(
                f"| {load} | {name} | {1e3 * seen.mean_s:,.0f} | {1e3 * seen.p90_s:,.0f} | "
                f"{1e3 * seen.mean_gap_s:.0f} | {1e3 * seen.p99_gap_s:.0f} | "
                f"{seen.over_budget:.2%} | {above} | {ways} |"
            )


if __name__ == "__main__":
    main()
