"""The chooser on simulated engines with measured costs: what it is worth, and where."""

from functools import cache

import pytest

from disaggpair_bed.ways.costs import Machines
from disaggpair_bed.ways.policies import Always, Chooser, Hindsight
from disaggpair_bed.ways.report import Figures, figures
from disaggpair_bed.ways.traffic import conversations
from disaggpair_bed.ways.world import Policy, World

BUDGET_S = 0.1
TURNS = 400
LOADS = {"quiet": (0.5, 1), "usual": (2.0, 1), "bursts": (1.0, 6), "busy": (4.0, 1)}
NOISE = 1.03


def played(policy: Policy, load: str, machines: Machines) -> Figures:
    per_s, burst = LOADS[load]
    traffic = conversations(3, turns=TURNS, per_s=per_s, burst=burst)
    judged = isinstance(policy, Chooser)
    return figures(World(traffic, policy, machines, judged).run(), BUDGET_S)


MEASURED = Machines()


@cache
def chosen(load: str, machines: Machines = MEASURED) -> Figures:
    return played(Chooser(), load, machines)


@pytest.mark.parametrize("load", LOADS)
def test_the_chosen_way_is_within_5_percent_of_the_best_one(load: str) -> None:
    regret = chosen(load).regret
    assert regret is not None
    assert regret < 0.05


@pytest.mark.parametrize("load", LOADS)
def test_a_run_is_within_5_percent_of_one_that_knows_all(load: str) -> None:
    best = played(Hindsight(BUDGET_S), load, MEASURED)
    assert chosen(load).mean_s < 1.05 * best.mean_s


@pytest.mark.parametrize("load", LOADS)
def test_no_single_way_is_better(load: str) -> None:
    for way in ("PULL", "DIRECT"):
        assert chosen(load).mean_s < NOISE * played(Always(way), load, MEASURED).mean_s


@pytest.mark.parametrize("load", LOADS)
def test_the_budget_of_gaps_is_kept(load: str) -> None:
    assert chosen(load).over_budget < 0.01
    assert chosen(load).p99_gap_s < BUDGET_S


@pytest.mark.parametrize(
    "machines",
    [
        Machines(p_work=0.25, d_work=0.25),
        Machines(d_work=2.0),
        Machines(read=7.0),
        Machines(latency=0.3),
    ],
    ids=["a small model", "a slow D", "slow reads", "little latency"],
)
def test_other_engines_are_learned(machines: Machines) -> None:
    seen = chosen("usual", machines)
    assert seen.regret is not None
    assert seen.regret < 0.07
    assert seen.over_budget < 0.01


def test_a_run_can_be_repeated() -> None:
    assert played(Chooser(), "usual", Machines()) == chosen("usual")


def test_looking_ahead_changes_nothing() -> None:
    traffic = conversations(5, turns=150, per_s=2.0)
    worlds = [World(traffic, Always("DIRECT"), judged=judged).run() for judged in (True, False)]
    first, second = ([turn.ttft_s for turn in world.played] for world in worlds)
    assert first == second
