"""A D full of finished turns keeps nobody waiting, though its leases last an hour."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from disaggpair_bed.cpu.install import Engines
from disaggpair_bed.cpu.leases import Leases
from disaggpair_bed.cpu.pair import Pair, PairOptions
from disaggpair_bed.cpu.testing import running_pair
from disaggpair_bed.hostile.stall import Bench, narrow_decode

TTL_S = 3600
HUNG_S = 60.0
STEPS = 3
SLACK_S = 0.5
"""For the machine's other work; a request that waits for a lease waits for an hour."""


@pytest.fixture(scope="module")
def narrow_pair(
    cpu_engines: Engines, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    options = PairOptions(decode=narrow_decode(TTL_S))
    with running_pair(cpu_engines, tiny_model, tmp_path_factory.mktemp("pair"), options) as pair:
        yield pair


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def test_no_request_waits_for_a_lease_to_end(
    narrow_pair: Pair, http: aiohttp.ClientSession
) -> None:
    leases = Leases(http, narrow_pair.decode)
    bench = Bench(narrow_pair, http, HUNG_S, print)
    await bench.on_empty(leases)
    await bench.on_full()
    held = await leases.listing()
    assert held["counts"]["granted"] > 0  # it is still full
    for wait in bench.waits:
        assert wait.leg.answered, wait
        assert wait.distance < 0.05, wait
    empty = [wait for wait in bench.waits if wait.place == "empty"]
    step_s = max(wait.leg.longest_gap_s for wait in empty)
    for wait in bench.waits:
        if wait.place == "full":
            alike = [one for one in empty if one.kind == wait.kind]
            allowed_s = STEPS * step_s + SLACK_S
            assert wait.first_s <= max(one.first_s for one in alike) + allowed_s
            assert wait.queued_s <= max(one.queued_s for one in alike) + allowed_s
            assert wait.leg.longest_gap_s <= step_s + allowed_s
