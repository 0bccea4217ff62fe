"""Engines that are killed at every stage of a turn: later turns are right, and nothing is kept.

One kill meets several conversations, each at another stage, since a start takes most of a minute.

P keeps no prefix cache and reads are given up after `READ_S`, so what a leg answers with and how
long it takes say what became of the read.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import pytest

from disaggpair_bed.cpu.engine import Engine
from disaggpair_bed.cpu.freeze import WORKER, frozen
from disaggpair_bed.cpu.install import Engines
from disaggpair_bed.cpu.leases import LEASE_ENVIRONMENT, Leases
from disaggpair_bed.cpu.options import NO_PREFIX_CACHING
from disaggpair_bed.cpu.pair import Pair, PairOptions, RoleOptions
from disaggpair_bed.cpu.testing import running_pair
from disaggpair_bed.demo import counters
from disaggpair_bed.hostile.client import FIRST_TURN, Client, Leg
from disaggpair_bed.hostile.conversation import Tokens, drawn
from disaggpair_bed.hostile.distribution import TOLERANCE, largest_distance
from disaggpair_bed.hostile.runner import cache_usage
from disaggpair_connector import contract

pytestmark = pytest.mark.timeout(900)

READ_S = 4.0
PREFILL_LEASE_S = 12.0
TTL_S = 600.0
HUNG_S = 40.0
ENDED_BY_UCX = "Fatal: unexpected error: Endpoint timeout"
"""UCX over TCP ends a process whose answer to a read finds its peer gone; vLLM then ends the
engine, as for a lost worker."""
GIVEN_UP_S = 10.0
"""For the end of a failed transfer, and the recomputation, on a busy machine."""
ANSWER_TOKENS = 16
PROMPT_TOKENS = 1500


@pytest.fixture(scope="module")
def pair(
    cpu_engines: Engines, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    extra = {
        contract.EXTRA_LEASE_READ: READ_S,
        contract.EXTRA_PREFILL_LEASE: PREFILL_LEASE_S,
        contract.EXTRA_DECODE_TTL: TTL_S,
    }
    options = PairOptions(
        prefill=RoleOptions(args=(NO_PREFIX_CACHING,), environment=LEASE_ENVIRONMENT, extra=extra),
        decode=RoleOptions(environment=LEASE_ENVIRONMENT, extra=extra),
    )
    with running_pair(cpu_engines, tiny_model, tmp_path_factory.mktemp("pair"), options) as running:
        yield running


@dataclass
class Talk:
    """A conversation of exact tokens on the pair."""

    decode: Engine
    p: Client
    d: Client
    leases: Leases
    """D's."""
    leases_of_p: Leases
    rng: Random
    history: Tokens = ()
    handle: Any = None
    reads: int = 0
    """Tokens that P read in the last turn."""

    def next_prompt(self) -> Tokens:
        return self.history + drawn(self.rng, 100 if self.history else PROMPT_TOKENS)

    async def p_leg(self, prompt: Tokens) -> Leg:
        return await self.p.complete(prompt, 1, params=self.handle or FIRST_TURN)

    async def d_leg(self, prompt: Tokens, offer: Any, tokens: int = ANSWER_TOKENS) -> Leg:
        return await self.d.complete(prompt, tokens, params=offer)

    async def turn(self) -> None:
        """A turn that has to be answered, and right in both legs."""
        prompt = self.next_prompt()
        before = await self.read_so_far()
        p_leg = await self.p_leg(prompt)
        assert p_leg.answered, p_leg
        self.reads = await self.read_so_far() - before
        d_leg = await self.d_leg(prompt, p_leg.params)
        await self.is_right(prompt, p_leg)
        await self.is_right(prompt, d_leg)
        self.history, self.handle = prompt + d_leg.tokens, d_leg.params

    async def is_right(self, prompt: Tokens, leg: Leg) -> None:
        """Each token's distribution is that of a recompute."""
        assert leg.answered, leg
        whole = prompt + leg.tokens
        truth = await self.p.distributions(whole, len(prompt), "recompute")
        assert truth is not None
        assert largest_distance(leg.tops, truth) <= TOLERANCE

    async def read_so_far(self) -> int:
        return counters.parse(await self.p.metrics()).read

    @asynccontextmanager
    async def held_read(self, prompt: Tokens) -> AsyncIterator[asyncio.Task[Leg]]:
        """A P leg whose read D has allowed and does not serve: its worker stands still."""
        since = (await self.leases.listing())["sequence"]
        with frozen(self.decode, WORKER):
            leg = asyncio.create_task(self.p_leg(prompt))
            await asyncio.wait_for(self.leases.until("reading", since), HUNG_S)
            yield leg


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def talks(pair: Pair, http: aiohttp.ClientSession) -> list[Talk]:
    return [
        Talk(
            pair.decode,
            Client(http, pair.prefill.url, HUNG_S),
            Client(http, pair.decode.url, HUNG_S),
            Leases(http, pair.decode),
            Leases(http, pair.prefill),
            Random(number),
        )
        for number in range(4)
    ]


async def test_a_d_that_is_killed_costs_each_turn_its_kv_and_nothing_else(
    pair: Pair, talks: list[Talk]
) -> None:
    between_turns, between_legs, answering, reading = talks
    for talk in talks:
        await talk.turn()

    offered_prompt = between_legs.next_prompt()
    offered = await between_legs.p_leg(offered_prompt)
    answer_prompt = answering.next_prompt()
    p_leg = await answering.p_leg(answer_prompt)
    begun = asyncio.Event()
    answer = asyncio.create_task(
        answering.d.streamed(answer_prompt, 1000, params=p_leg.params, begun=begun)
    )
    await asyncio.wait_for(begun.wait(), HUNG_S)
    read_prompt = reading.next_prompt()
    async with reading.held_read(read_prompt) as leg:
        pair.decode.kill()
    read = await leg
    await reading.is_right(read_prompt, read)
    assert read.seconds < READ_S + GIVEN_UP_S
    assert (await answer).outcome in ("failed", "gone")
    without_d = between_turns.next_prompt()
    computed = await between_turns.p_leg(without_d)
    await between_turns.is_right(without_d, computed)
    assert computed.seconds < GIVEN_UP_S

    pair.decode.restart()
    await between_legs.is_right(
        offered_prompt, await between_legs.d_leg(offered_prompt, offered.params)
    )
    for talk in talks:
        await talk.turn()
        assert talk.reads == 0
        await talk.turn()
        assert talk.reads > PROMPT_TOKENS
    await nothing_is_held(talks[0])


async def test_a_p_that_is_killed_fails_its_turns_and_no_later_one(
    pair: Pair, talks: list[Talk]
) -> None:
    between_legs, reading, *_ = talks
    await between_legs.turn()
    await reading.turn()
    offered_prompt = between_legs.next_prompt()
    offered = await between_legs.p_leg(offered_prompt)
    async with reading.held_read(reading.next_prompt()) as leg:
        pair.prefill.kill()
        assert (await leg).outcome in ("failed", "gone")
    d_leg = await between_legs.d_leg(offered_prompt, offered.params)
    pair.prefill.restart()
    if d_leg.answered:
        await between_legs.is_right(offered_prompt, d_leg)
    else:
        assert d_leg.outcome in ("failed", "gone"), d_leg
    if not pair.decode.is_healthy():
        # D stood still while P died, and came back to answer a read of a peer that was gone.
        assert ENDED_BY_UCX in pair.decode.log.read_text()
        pair.decode.restart()
    for talk in (between_legs, reading):
        await talk.turn()  # with the handle that was used
        assert talk.reads == 0
        await talk.turn()
        assert talk.reads > PROMPT_TOKENS
    await nothing_is_held(talks[0])


async def test_a_d_that_stands_still_holds_up_the_read_and_nothing_else(
    talks: list[Talk],
) -> None:
    talk, *_ = talks
    await talk.turn()
    prompt = talk.next_prompt()
    since = (await talk.leases.listing())["sequence"]
    async with talk.held_read(prompt) as leg:
        await asyncio.wait_for(talk.leases.until("ended", since), HUNG_S)
        assert not leg.done()
    answered = await leg
    await talk.is_right(prompt, answered)
    await talk.turn()
    assert talk.reads == 0
    await talk.turn()
    assert talk.reads > PROMPT_TOKENS
    await nothing_is_held(talk)


async def nothing_is_held(talk: Talk) -> None:
    """Give up the conversation's last lease; then both caches are free after P's leases."""
    for lease in (await talk.leases.listing())["leases"]:
        assert lease["state"] == "granted", lease
        assert await talk.leases.release(lease["id"]) == 204
    async with asyncio.timeout(HUNG_S):
        while True:
            # An engine without a request does not step, and says nothing new of its cache.
            for client in (talk.p, talk.d):
                await client.complete((5,) * 8, 1)
            usage = [cache_usage(await client.metrics()) for client in (talk.p, talk.d)]
            if usage == [0, 0]:
                break
            await asyncio.sleep(0.5)
    for leases in (talk.leases, talk.leases_of_p):
        assert (await leases.listing())["leases"] == []
