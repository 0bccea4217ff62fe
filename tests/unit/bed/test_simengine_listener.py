"""The lease listener of simulated engines, over real sockets, as a router uses it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Literal

import aiohttp
import pytest

from disaggpair_bed.leaseview import LeaseView
from disaggpair_bed.simengine import RunningEngine, running_engine
from disaggpair_bed.simengine.twolegs import TURN_1, Answer, Client, Conversation

LONG = "tell me about the rivers of the north " * 30
KEY = "a key of the router"
COLD = "--no-enable-prefix-caching"
OURS: dict[str, Any] = {"connector": "DisaggPair", "lease_key": KEY}

Params = dict[str, Any]


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session:
        yield Client(session)


@pytest.fixture
async def prefill() -> AsyncIterator[RunningEngine]:
    async with running_engine("prefill", COLD, **OURS) as engine:
        yield engine


@pytest.fixture
async def decode() -> AsyncIterator[RunningEngine]:
    async with running_engine("decode", **OURS) as engine:
        yield engine


def view(client: Client, engine: RunningEngine, key: str = KEY) -> LeaseView:
    return LeaseView(client.session, engine.lease_urls[0], key)


def violations(*engines: RunningEngine) -> list[str]:
    return [item.kind for engine in engines for one in engine.oracles for item in one.violations]


async def first_turn(
    client: Client,
    prefill: RunningEngine,
    decode: RunningEngine,
    conversation: str = "c1",
    **settings: Any,
) -> Conversation:
    """A conversation after its first turn, whose lease has that conversation."""
    chat = Conversation(client, prefill.url, decode.url)
    chat.handle = {**TURN_1, "disaggpair": {"conversation": conversation}}
    await chat.say(LONG, **settings)
    return chat


async def claimed_turn(
    client: Client,
    decode: RunningEngine,
    chat: Conversation,
    purpose: Literal["read", "direct"] = "read",
    conversation: str = "c1",
) -> Answer:
    """The next turn, on a lease that is found by its conversation and claimed."""
    leases = view(client, decode)
    lease = await leases.of(conversation)
    params = await leases.claim(lease["id"], purpose)
    messages = [*chat.messages, {"role": "user", "content": LONG}]
    if purpose == "direct":
        return await client.post(decode.url, {"messages": messages, "kv_transfer_params": params})
    return await client.turn(chat.prefill_url, decode.url, {"messages": messages}, params)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("release", ["0.31.0", "0.33.0"])
async def test_the_conversation_of_a_turn_is_in_the_lease(
    client: Client, release: str, stream: bool
) -> None:
    both: dict[str, Any] = {**OURS, "release": release}
    async with (
        running_engine("prefill", COLD, **both) as prefill,
        running_engine("decode", **both) as decode,
    ):
        await first_turn(client, prefill, decode, "place-of-a-turn", stream=stream)
        listing = await view(client, decode).listing()
    assert [lease["conversation"] for lease in listing["leases"]] == ["place-of-a-turn"]
    assert [lease["state"] for lease in listing["leases"]] == ["granted"]


async def test_the_conversation_may_come_with_the_d_leg_alone(
    client: Client, prefill: RunningEngine, decode: RunningEngine
) -> None:
    body = {"messages": [{"role": "user", "content": LONG}]}
    first = await client.prefill(prefill.url, body)
    assert first.params is not None
    ours = {**first.params["disaggpair"], "conversation": "of D"}
    params = {**first.params, "disaggpair": ours}
    await client.post(decode.url, {**body, "stream": True, "kv_transfer_params": params})
    assert (await view(client, decode).of("of D"))["tokens"] > 0
    assert violations(prefill, decode) == []


async def test_a_lease_that_is_claimed_for_a_read_is_read(
    client: Client, prefill: RunningEngine, decode: RunningEngine
) -> None:
    chat = await first_turn(client, prefill, decode)
    lease = await view(client, decode).of("c1")
    answer = await claimed_turn(client, decode, chat)
    assert answer.status == 200
    assert prefill.engine.core.stats.external_kv_transfer == lease["tokens"]
    assert (await view(client, decode).of("c1"))["id"] != lease["id"]
    assert violations(prefill, decode) == []


async def test_a_direct_turn_finds_its_history_in_the_cache_of_d(
    client: Client, prefill: RunningEngine, decode: RunningEngine
) -> None:
    chat = await first_turn(client, prefill, decode)
    leases = view(client, decode)
    before = await leases.listing()
    answer = await claimed_turn(client, decode, chat, "direct")
    assert answer.status == 200
    ended = await leases.until("ended", before["sequence"])
    assert ended["reason"] == "direct"
    (history,) = before["leases"]
    blocks = history["tokens"] // 16
    assert decode.engine.core.stats.local_cache_hit == blocks * 16
    assert (await leases.of("c1"))["tokens"] > history["tokens"]
    assert violations(prefill, decode) == []


async def test_a_released_lease_gives_its_blocks_back(
    client: Client, prefill: RunningEngine, decode: RunningEngine
) -> None:
    await first_turn(client, prefill, decode)
    leases = view(client, decode)
    lease = await leases.of("c1")
    assert await leases.release(lease["id"]) == 204
    assert await leases.release(lease["id"]) == 404
    decode.engine.core.connector.settle()
    assert decode.engine.core.pool.usage == 0
    assert decode.engine.oracle.count("released", "decode") == 1


async def test_a_second_claim_is_refused(
    client: Client, prefill: RunningEngine, decode: RunningEngine
) -> None:
    await first_turn(client, prefill, decode)
    leases = view(client, decode)
    lease = (await leases.of("c1"))["id"]
    assert isinstance(await leases.claim(lease), dict)
    assert await leases.claim(lease, "direct") == 409
    assert await leases.claim("none") == 404


async def test_a_claim_that_nobody_uses_lapses(client: Client, prefill: RunningEngine) -> None:
    async with running_engine("decode", extra={"lease_claim_s": 0.05}, **OURS) as decode:
        await first_turn(client, prefill, decode)
        leases = view(client, decode)
        lease, before = await leases.of("c1"), await leases.listing()
        await leases.claim(lease["id"])
        assert (await leases.until("lapsed", before["sequence"]))["lease"]["id"] == lease["id"]
        assert isinstance(await leases.claim(lease["id"]), dict)


async def test_a_watcher_is_told_that_a_lease_ran_out(
    client: Client, prefill: RunningEngine
) -> None:
    async with running_engine("decode", extra={"decoder_kv_blocks_ttl": 0.2}, **OURS) as decode:
        await first_turn(client, prefill, decode)
        leases = view(client, decode)
        ended = await leases.until("ended", 0)
        assert (ended["reason"], ended["lease"]["conversation"]) == ("expired", "c1")
        assert (await leases.listing())["leases"] == []


async def test_a_full_d_reclaims_a_lease_and_says_so(
    client: Client, prefill: RunningEngine
) -> None:
    async with running_engine("decode", "--num-gpu-blocks-override", "45", **OURS) as decode:
        await first_turn(client, prefill, decode)
        leases = view(client, decode)
        before = await leases.listing()
        other = {"messages": [{"role": "user", "content": "another subject " * 120}]}
        assert (await client.post(decode.url, other)).status == 200
        ended = await leases.until("ended", before["sequence"])
        assert ended["reason"] == "reclaimed"
        assert violations(prefill, decode) == []


async def test_each_role_serves_leases(
    client: Client, prefill: RunningEngine, decode: RunningEngine
) -> None:
    body = {"messages": [{"role": "user", "content": LONG}]}
    await client.prefill(prefill.url, body)
    assert len((await view(client, prefill).listing())["leases"]) == 1
    with pytest.raises(aiohttp.ClientResponseError, match="403"):
        await view(client, decode, "guess").listing()


async def test_a_restart_keeps_the_addresses_and_nothing_else(
    client: Client, prefill: RunningEngine, decode: RunningEngine
) -> None:
    chat = await first_turn(client, prefill, decode)
    leases = view(client, decode)
    before, addresses = await leases.listing(), (decode.url, decode.lease_urls)
    old = await leases.claim((await leases.of("c1"))["id"])
    await decode.restart()
    after = await leases.listing()
    assert (decode.url, decode.lease_urls) == addresses
    assert after["epoch"] != before["epoch"]
    assert after["leases"] == []
    messages = [*chat.messages, {"role": "user", "content": LONG}]
    answer = await client.turn(prefill.url, decode.url, {"messages": messages}, old)
    assert answer.status == 200
    assert prefill.engine.core.stats.refused_reads == {"unknown": 1}
    assert violations(prefill, decode) == []


async def test_a_watch_ends_with_its_engine(
    client: Client, prefill: RunningEngine, decode: RunningEngine
) -> None:
    await first_turn(client, prefill, decode)
    since = (await view(client, decode).listing())["sequence"]
    watching = asyncio.create_task(view(client, decode).until("ended", since))
    await asyncio.sleep(0)
    await decode.stop()
    with pytest.raises((aiohttp.ClientError, TimeoutError)):
        await watching


async def test_the_ports_of_an_engine_are_told(client: Client, decode: RunningEngine) -> None:
    async with client.session.get(decode.url + "/sim/state") as response:
        state = await response.json()
    assert f"http://127.0.0.1:{state['lease_port']}" == decode.lease_urls[0]
    assert state["side_channel_port"] == decode.engine.port
