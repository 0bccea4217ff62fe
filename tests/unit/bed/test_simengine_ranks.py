"""Data-parallel ranks behind one API of a simulated engine."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from disaggpair_bed.leaseview import LeaseView
from disaggpair_bed.simengine import RunningEngine, running_engine
from disaggpair_bed.simengine.commandline import parse_command_line
from disaggpair_bed.simengine.options import Ports
from disaggpair_bed.simengine.twolegs import TURN_1, Client, Conversation, until

LONG = "tell me about the rivers of the north " * 30
HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}]}
KEY = "a key of the router"
RANK = "X-data-parallel-rank"
OURS: dict[str, Any] = {"connector": "DisaggPair", "lease_key": KEY}


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session:
        yield Client(session)


@pytest.fixture
async def decode() -> AsyncIterator[RunningEngine]:
    async with running_engine("decode", "--data-parallel-size", "2", **OURS) as engine:
        yield engine


def sampled(engine: RunningEngine) -> list[int]:
    """Tokens that each rank has sampled."""
    return [rank.core.stats.generation_tokens for rank in engine.ranks.engines]


async def test_a_rank_has_its_own_id_ports_and_pool(client: Client, decode: RunningEngine) -> None:
    async with client.session.get(decode.url + "/sim/state") as response:
        state = await response.json()
    ids = [rank["engine_id"] for rank in state["ranks"]]
    base = ids[0].removesuffix("_dp0")
    assert ids == [f"{base}_dp0", f"{base}_dp1"]
    assert len({rank["side_channel_port"] for rank in state["ranks"]}) == 2
    assert len({rank["lease_port"] for rank in state["ranks"]}) == 2
    assert state["blocks"] == sum(rank["blocks"] for rank in state["ranks"])


def test_ports_of_ranks_follow_the_first_ones() -> None:
    config = (
        '{"kv_connector":"DisaggPairConnector","kv_role":"kv_consumer",'
        '"kv_connector_module_path":"disaggpair_connector.connector"}'
    )
    options = parse_command_line(["m", "-dp", "3", "--kv-transfer-config", config], {})
    assert [options.ports(rank) for rank in range(options.dp_size)] == [
        Ports(5600, 5700),
        Ports(5601, 5701),
        Ports(5602, 5702),
    ]


async def test_a_request_goes_to_the_rank_that_it_names(
    client: Client, decode: RunningEngine
) -> None:
    await client.post(decode.url, HELLO, **{RANK: "1"})
    assert [count > 0 for count in sampled(decode)] == [False, True]


async def test_a_rank_that_does_not_exist_is_refused(client: Client, decode: RunningEngine) -> None:
    answer = await client.post(decode.url, HELLO, **{RANK: "2"})
    assert (answer.status, answer.error and answer.error["message"]) == (
        400,
        "data_parallel_rank 2 is out of range [0, 2).",
    )
    assert (await client.post(decode.url, HELLO, **{RANK: "-1"})).status == 400
    assert (await client.post(decode.url, HELLO, **{RANK: "first"})).status == 200


async def test_requests_without_a_rank_go_where_least_is_to_be_done(client: Client) -> None:
    async with running_engine("both", "-dp", "2", "--sim-token-s", "0.01") as engine:
        busy = asyncio.create_task(client.post(engine.url, HELLO, **{RANK: "0"}))
        await until(lambda: engine.ranks.in_flight)
        await client.post(engine.url, HELLO)
        await busy
        assert all(sampled(engine))


async def test_each_rank_keeps_its_own_prefix_cache(client: Client, decode: RunningEngine) -> None:
    body = {"messages": [{"role": "user", "content": LONG}]}
    for rank in ("0", "1", "1"):
        await client.post(decode.url, body, **{RANK: rank})
    hits = [rank.core.stats.local_cache_hit for rank in decode.ranks.engines]
    assert hits[0] == 0
    assert hits[1] > 0


async def test_each_rank_gives_leases_of_its_own_that_are_read(
    client: Client, decode: RunningEngine
) -> None:
    async with running_engine("prefill", "--no-enable-prefix-caching", **OURS) as prefill:
        body = {"messages": [{"role": "user", "content": LONG}]}
        for rank in ("0", "1"):
            params = {**TURN_1, "disaggpair": {"conversation": f"of {rank}"}}
            first = await client.prefill(prefill.url, body, params)
            leg = {**body, "kv_transfer_params": first.params}
            await client.post(decode.url, leg, **{RANK: rank})
        for number, url in enumerate(decode.lease_urls):
            leases = LeaseView(client.session, url, KEY)
            (lease,) = (await leases.listing())["leases"]
            assert lease["conversation"] == f"of {number}"
            handle = await leases.claim(lease["id"])
            assert handle["remote_engine_id"] == decode.ranks.engines[number].engine_id
            before = prefill.engine.core.stats.external_kv_transfer
            answer = await client.prefill(prefill.url, body, handle)
            assert answer.status == 200
            assert prefill.engine.core.stats.external_kv_transfer > before
        assert [item for one in decode.oracles for item in one.violations] == []


async def test_a_core_that_dies_takes_the_others_with_it(
    client: Client, decode: RunningEngine
) -> None:
    decode.ranks.engines[1].crash("a test")
    await until(lambda: decode.closed)
    assert decode.ranks.death == "a test"
    with pytest.raises(aiohttp.ClientError):
        await client.post(decode.url, HELLO)


async def test_metrics_have_the_samples_of_each_rank(client: Client, decode: RunningEngine) -> None:
    await client.post(decode.url, HELLO, **{RANK: "1"})
    async with client.session.get(decode.url + "/metrics") as response:
        page = await response.text()
    assert page.count("# TYPE vllm:num_requests_running gauge") == 1
    for rank, count in enumerate(sampled(decode)):
        line = f'vllm:generation_tokens_total{{engine="{rank}",model_name="toy"}} {count}.0'
        assert line in page
        assert f'disaggpair:leases{{engine="{rank}",model_name="toy",state="granted"}}' in page


async def test_a_conversation_on_two_ranks_is_answered_as_on_one(client: Client) -> None:
    async with (
        running_engine("prefill", "-dp", "2") as prefill,
        running_engine("decode", "-dp", "2") as decode,
        running_engine() as alone,
    ):
        chat = Conversation(client, prefill.url, decode.url)
        texts = [(await chat.say(LONG)).text for _ in range(4)]
        for number, text in enumerate(texts):
            body = {"messages": chat.messages[: 2 * number + 1]}
            assert (await client.post(alone.url, body)).text == text
        oracles = (*prefill.oracles, *decode.oracles)
        assert [item for one in oracles for item in one.violations] == []
