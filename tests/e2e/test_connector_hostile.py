"""Hostile turns on real engines: no wrong answer, no hang, no dead engine, nothing kept."""

from pathlib import Path

import pytest

from disaggpair_bed.cpu.install import Engines
from disaggpair_bed.cpu.testing import require_memory
from disaggpair_bed.hostile.record import Record
from disaggpair_bed.hostile.runner import Plan, run

TURNS = 75

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize("prefix_caching", [False, True], ids=["P-forgets", "P-caches"])
def test_no_turn_is_wrong_whatever_is_done_to_the_handles(
    cpu_engines: Engines, tiny_model: Path, tmp_path: Path, prefix_caching: bool
) -> None:
    require_memory()
    plan = Plan("DisaggPair", TURNS, seed=7, prefix_caching=prefix_caching, ttl_s=15)
    record = Record()
    still_held = run(plan, cpu_engines, tiny_model, tmp_path, print, record)
    assert record.turns >= TURNS
    assert record.total.faults == 0, record.table()
    assert record.total.read > 0
    assert still_held == (0, 0)
