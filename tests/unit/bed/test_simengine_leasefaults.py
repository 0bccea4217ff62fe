"""Faults of the lease listener that a test switches on."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from disaggpair_bed.leaseview import LeaseView
from disaggpair_bed.simengine import RunningEngine, running_engine
from disaggpair_bed.simengine.twolegs import Client

KEY = "a key of the router"
LONG = {"messages": [{"role": "user", "content": "about the rivers of the north " * 40}]}
OURS: dict[str, Any] = {"connector": "DisaggPair", "lease_key": KEY}


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session:
        yield Client(session)


@pytest.fixture
async def engine() -> AsyncIterator[RunningEngine]:
    async with running_engine("decode", **OURS) as engine:
        yield engine


def view(client: Client, engine: RunningEngine) -> LeaseView:
    return LeaseView(client.session, engine.lease_urls[0], KEY)


@pytest.mark.parametrize(
    ("fault", "raised"),
    [
        ({"kind": "lease_status", "status": 503}, aiohttp.ClientResponseError),
        ({"kind": "lease_gone"}, aiohttp.ClientResponseError),
        ({"kind": "lease_garbage"}, aiohttp.ClientError),
        ({"kind": "lease_malformed"}, ValueError),
        ({"kind": "lease_drop", "count": 2}, aiohttp.ClientError),  # the client tries twice
    ],
)
async def test_a_list_goes_wrong_once(
    client: Client, engine: RunningEngine, fault: dict[str, Any], raised: type[Exception]
) -> None:
    engine.faults.add(**fault)
    with pytest.raises(raised):
        await view(client, engine).listing()
    assert (await view(client, engine).listing())["leases"] == []


async def test_a_fault_of_one_route_leaves_the_others_alone(
    client: Client, engine: RunningEngine
) -> None:
    engine.faults.add("lease_status", route="claim", status=500, count=None)
    leases = view(client, engine)
    assert (await leases.listing())["leases"] == []
    assert await leases.claim("any") == 500
    assert await leases.release("any") == 404


async def test_a_silent_listener_answers_when_faults_are_cleared(
    client: Client, engine: RunningEngine
) -> None:
    engine.faults.add("lease_silent")
    listing = asyncio.create_task(view(client, engine).listing())
    done, _ = await asyncio.wait([listing], timeout=0.1)
    assert not done
    engine.faults.clear()
    assert (await listing)["leases"] == []


async def test_a_slow_listener_answers_later(client: Client, engine: RunningEngine) -> None:
    engine.faults.add("lease_slow", delay_s=0.1)
    listing = asyncio.create_task(view(client, engine).listing())
    done, _ = await asyncio.wait([listing], timeout=0.05)
    assert not done
    assert (await listing)["leases"] == []


async def test_a_silent_listener_does_not_hold_up_the_end(client: Client) -> None:
    async with running_engine("decode", **OURS) as engine:
        engine.faults.add("lease_silent")
        listing = asyncio.create_task(view(client, engine).listing())
        await asyncio.wait([listing], timeout=0.05)
        async with asyncio.timeout(3):
            await engine.stop()
    with pytest.raises(aiohttp.ClientError):
        await listing


async def test_watches_are_cut(client: Client, engine: RunningEngine) -> None:
    watching = asyncio.create_task(view(client, engine).until("ended", 0))
    await asyncio.wait([watching], timeout=0.1)
    async with client.session.delete(engine.url + "/sim/watches") as response:
        assert await response.json() == {"cut": 1}
    with pytest.raises((aiohttp.ClientError, TimeoutError)):
        await watching


async def test_a_frozen_engine_tells_its_watchers_nothing(
    client: Client, engine: RunningEngine
) -> None:
    async with running_engine("prefill", **OURS) as prefill:
        watching = asyncio.create_task(view(client, engine).until("granted", 0))
        engine.faults.freeze()
        turn = asyncio.create_task(client.turn(prefill.url, engine.url, LONG))
        done, _ = await asyncio.wait([watching, turn], timeout=0.2)
        assert not done
        engine.faults.thaw()
        assert (await turn).status == 200
        assert (await watching)["type"] == "granted"


async def test_a_reader_that_gets_no_answer_computes(client: Client) -> None:
    async with (
        running_engine("prefill", "--no-enable-prefix-caching", **OURS) as prefill,
        running_engine("decode", **OURS) as decode,
    ):
        first = await client.turn(prefill.url, decode.url, LONG)
        decode.faults.add("lease_status", route="read", status=500)
        answer = await client.prefill(prefill.url, LONG, first.params)
        assert answer.status == 200
        assert prefill.engine.core.stats.external_kv_transfer == 0
        assert sum(prefill.engine.core.stats.refused_reads.values()) == 1
