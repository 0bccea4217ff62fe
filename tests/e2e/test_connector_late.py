"""Data of a read that arrives after the read's time, beside other requests."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from random import Random

import aiohttp
import pytest

from disaggpair_bed.cpu.freeze import WORKER, frozen
from disaggpair_bed.cpu.install import Engines
from disaggpair_bed.cpu.leases import LEASE_ENVIRONMENT, Leases
from disaggpair_bed.cpu.pair import Pair, PairOptions, RoleOptions
from disaggpair_bed.cpu.testing import running_pair
from disaggpair_bed.hostile.client import FIRST_TURN, Client, Leg
from disaggpair_bed.hostile.conversation import Tokens, drawn
from disaggpair_bed.hostile.distribution import TOLERANCE, largest_distance
from disaggpair_connector import contract

READ_S = 3.0
PREFILL_LEASE_S = 10.0
HUNG_S = 60.0
PREFILL_BLOCKS = 130
"""Of 32 tokens: the late read and one request beside it take nearly all of them."""


@pytest.fixture(scope="module")
def pair(
    cpu_engines: Engines, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    extra = {contract.EXTRA_LEASE_READ: READ_S, contract.EXTRA_PREFILL_LEASE: PREFILL_LEASE_S}
    options = PairOptions(
        prefill=RoleOptions(
            args=("--num-gpu-blocks-override", str(PREFILL_BLOCKS)),
            environment=LEASE_ENVIRONMENT,
            extra=extra,
        ),
        decode=RoleOptions(environment=LEASE_ENVIRONMENT, extra=extra),
    )
    with running_pair(cpu_engines, tiny_model, tmp_path_factory.mktemp("pair"), options) as running:
        yield running


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def test_what_arrives_late_reaches_no_other_request(
    pair: Pair, http: aiohttp.ClientSession
) -> None:
    rng = Random(2)
    p, d = Client(http, pair.prefill.url, HUNG_S), Client(http, pair.decode.url, HUNG_S)
    leases = Leases(http, pair.decode)
    prompt = drawn(rng, 1600)
    # On D alone, so that P has nothing of it in its cache; D gives a lease all the same.
    held = await d.complete(prompt, 8, params={contract.PAIR_PARAMS: {"conversation": "c"}})
    longer = prompt + held.tokens + drawn(rng, 100)
    since = (await leases.listing())["sequence"]
    other = drawn(rng, 1700)
    with frozen(pair.decode, WORKER):
        leg = asyncio.create_task(p.complete(longer, 1, params=held.params))
        await asyncio.wait_for(leases.until("ended", since), HUNG_S)
        assert not leg.done()
        answered = await p.complete(other, 100, salt="other")
    late = await leg
    assert await distance(p, other, answered) <= TOLERANCE
    whole = other + answered.tokens
    again = await p.complete(whole, 1, salt="other")  # from P's cache
    assert await distance(p, whole, again) <= TOLERANCE
    assert await distance(p, longer, late) <= TOLERANCE


async def test_a_p_that_stands_still_while_d_reads_holds_up_the_read_and_nothing_else(
    pair: Pair, http: aiohttp.ClientSession
) -> None:
    rng = Random(3)
    p, d = Client(http, pair.prefill.url, HUNG_S), Client(http, pair.decode.url, HUNG_S)
    prompt = drawn(rng, 1600)
    leases = Leases(http, pair.prefill)
    offer = await p.complete(prompt, 1, params=FIRST_TURN)
    since = (await leases.listing())["sequence"]
    with frozen(pair.prefill, WORKER):
        leg = asyncio.create_task(d.complete(prompt, 8, params=offer.params))
        await asyncio.wait_for(leases.until("reading", since), HUNG_S)
        assert (await d.complete(drawn(rng, 300), 8)).answered
        assert not leg.done()
    assert await distance(p, prompt, await leg) <= TOLERANCE
    again = await p.complete(prompt, 1, params=FIRST_TURN)
    answered = await d.complete(prompt, 8, params=again.params)
    assert await distance(p, prompt, answered) <= TOLERANCE


async def distance(p: Client, prompt: Tokens, leg: Leg) -> float:
    """Of the leg's distributions from a recompute."""
    assert leg.answered, leg
    truth = await p.distributions(prompt + leg.tokens, len(prompt), "recompute")
    assert truth is not None
    return largest_distance(leg.tops, truth)
