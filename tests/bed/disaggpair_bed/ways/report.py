"""Figures of a run."""

from dataclasses import dataclass
from statistics import fmean, quantiles

from disaggpair_bed.ways.world import Played, World


@dataclass(frozen=True)
class Figures:
    """What a policy came to. Seconds."""

    turns: int
    mean_s: float
    p90_s: float
    p99_gap_s: float
    mean_gap_s: float
    over_budget: float
    """Part of the gaps above the budget."""
    regret: float | None
    """None if the world is not judged. Else how far the mean of the chosen ways is above
    that of the best ones: for each turn, in the state that it found, the fastest way whose gap is
    within the budget, with all luck known and later turns left out."""
    ways: dict[str, int]


def figures(world: World, gap_budget_s: float) -> Figures:
    """The figures of turns that follow a first one: the others have one way only."""
    later = [turn for turn in world.played if turn.asked.held]
    spent = [turn.ttft_s for turn in later]
    gaps = sorted(world.gaps)
    count = sum(streams for _, streams in gaps)
    seen, p99 = 0, 0.0
    for length, streams in gaps:
        seen += streams
        if seen >= 0.99 * count:
            p99 = length
            break
    ways: dict[str, int] = {}
    for turn in later:
        ways[turn.way] = ways.get(turn.way, 0) + 1
    return Figures(
        turns=len(later),
        mean_s=fmean(spent),
        p90_s=quantiles(spent, n=10)[-1],
        p99_gap_s=p99,
        mean_gap_s=sum(length * streams for length, streams in gaps) / count,
        over_budget=sum(streams for length, streams in gaps if length > gap_budget_s) / count,
        regret=_regret(later, gap_budget_s) if world.judged else None,
        ways=ways,
    )


def _regret(turns: list[Played], gap_budget_s: float) -> float:
    chosen = fmean(turn.possible_s[turn.way] for turn in turns)
    best = fmean(
        min(
            seconds
            for way, seconds in turn.possible_s.items()
            if way != "DIRECT" or turn.gap_s <= gap_budget_s
        )
        for turn in turns
    )
    return chosen / best - 1
