"""Real engines and a router that are killed and stopped while clients talk: nothing is wrong."""

from pathlib import Path

import pytest

from disaggpair_bed.chaos.real.run import RealPlan, play
from disaggpair_bed.cpu.install import Engines
from disaggpair_bed.cpu.testing import require_memory

pytestmark = pytest.mark.timeout(900)

SEED = 11
"""Its first acts are of all sorts, and only one of them starts an engine again."""


def test_whatever_happens_to_engines_and_router_answers_are_right_or_errors(
    cpu_engines: Engines, tiny_model: Path, tmp_path: Path
) -> None:
    require_memory()
    plan = RealPlan(turns=60, acts=8, seed=SEED, clients=4, calm_turns=25)
    record = play(plan, cpu_engines, tiny_model, tmp_path, print)
    assert record.faults == [], record.table()
    assert record.events["P killed"] == record.events["router killed"] == 1
    assert record.of("right") > 50
    assert record.router["tokens read"] > 0
