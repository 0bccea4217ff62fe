"""Simulated engines with our connector over real sockets: listener, questions, reads."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from disaggpair_bed.simengine import RunningEngine, running_engine
from disaggpair_bed.simengine.decodeconnector import DecodeConnector
from disaggpair_bed.simengine.twolegs import Answer, Client, Conversation, until

LONG = "tell me about the rivers of the north " * 30
KEY = "a key of the router"
COLD = "--no-enable-prefix-caching"

Params = dict[str, Any]


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session:
        yield Client(session)


@pytest.fixture
async def prefill() -> AsyncIterator[RunningEngine]:
    async with running_engine("prefill", COLD, connector="DisaggPair") as engine:
        yield engine


@pytest.fixture
async def decode() -> AsyncIterator[RunningEngine]:
    async with running_engine("decode", connector="DisaggPair", lease_key=KEY) as engine:
        yield engine


def violations(*engines: RunningEngine) -> list[str]:
    return [item.kind for engine in engines for item in engine.engine.oracle.violations]


def kept(engine: RunningEngine) -> int:
    """Leases of D, those left out that were released since its last step."""
    engine.engine.core.connector.settle()
    return engine.engine.core.connector.kept


def read(engine: RunningEngine) -> int:
    """Prompt tokens that P has read."""
    return engine.engine.core.stats.external_kv_transfer


async def first_turn(
    client: Client, prefill: RunningEngine, decode: RunningEngine
) -> tuple[Conversation, Params]:
    """A conversation after its first turn, and the handle."""
    chat = Conversation(client, prefill.url, decode.url)
    answer = await chat.say(LONG)
    assert answer.params is not None
    return chat, answer.params


async def second_leg(
    client: Client, prefill: RunningEngine, chat: Conversation, handle: Params
) -> Answer:
    """The P leg of the next turn."""
    messages = [*chat.messages, {"role": "user", "content": LONG}]
    return await client.prefill(prefill.url, {"messages": messages}, handle)


async def test_an_edited_history_is_answered_right(
    client: Client, prefill: RunningEngine, decode: RunningEngine
) -> None:
    chat, _ = await first_turn(client, prefill, decode)
    chat.messages[0]["content"] = "Never mind. " + LONG
    answer = await chat.say(LONG)
    async with running_engine() as alone:
        same = await client.post(alone.url, {"messages": chat.messages[:-1]})
    assert same.text == answer.text
    assert read(prefill) == 0
    assert prefill.engine.core.stats.refused_reads == {"tokens": 1}
    await until(lambda: kept(decode) == 1)
    assert violations(prefill, decode) == []


async def test_a_dead_d_is_recomputed_by_a_cold_p(client: Client, prefill: RunningEngine) -> None:
    async with running_engine("decode", connector="DisaggPair") as decode:
        chat, handle = await first_turn(client, prefill, decode)
    answer = await second_leg(client, prefill, chat, handle)
    assert answer.status == 200
    assert prefill.engine.core.stats.refused_reads == {"unreachable": 1}
    assert violations(prefill, decode) == []


async def test_an_id_that_is_pinned_does_not_hide_a_restart(
    client: Client, prefill: RunningEngine
) -> None:
    pinned: Params = {"connector": "DisaggPair", "transfer": {"engine_id": "always-the-same"}}
    async with running_engine("decode", **pinned) as decode:
        chat, handle = await first_turn(client, prefill, decode)
    async with running_engine("decode", **pinned) as again:
        connector = again.engine.core.connector
        assert isinstance(connector, DecodeConnector)
        moved = {
            **handle,
            "remote_port": again.engine.port,
            "disaggpair": {**handle["disaggpair"], "port": connector.lease_port},
        }
        answer = await second_leg(client, prefill, chat, moved)
        assert answer.status == 200
        assert prefill.engine.core.stats.refused_reads == {"unknown": 1}
        assert violations(prefill, again) == []


async def test_a_handle_is_read_once(
    client: Client, prefill: RunningEngine, decode: RunningEngine
) -> None:
    chat, handle = await first_turn(client, prefill, decode)
    legs = [second_leg(client, prefill, chat, handle) for _ in range(3)]
    assert [answer.status for answer in await asyncio.gather(*legs)] == [200, 200, 200]
    assert read(prefill) == handle["remote_num_tokens"]
    assert sum(prefill.engine.core.stats.refused_reads.values()) == 2
    assert violations(prefill, decode) == []


async def test_children_of_one_request_read_the_blocks_of_p_once(
    client: Client, prefill: RunningEngine, decode: RunningEngine
) -> None:
    body = {"messages": [{"role": "user", "content": LONG}]}
    first = await client.prefill(prefill.url, body)
    answer = await client.post(decode.url, {**body, "n": 2, "kv_transfer_params": first.params})
    assert answer.status == 200
    (refused,) = decode.engine.core.stats.refused_reads.items()
    assert refused in [("taken", 1), ("unknown", 1)]
    assert violations(prefill, decode) == []


async def test_two_ds_with_one_reply_of_p_read_it_once_and_say_the_same(
    client: Client, prefill: RunningEngine, decode: RunningEngine
) -> None:
    body = {"messages": [{"role": "user", "content": LONG}]}
    first = await client.prefill(prefill.url, body)
    async with running_engine("decode", connector="DisaggPair") as other, running_engine() as alone:
        leg = {**body, "kv_transfer_params": first.params}
        answers = [await client.post(engine.url, leg) for engine in (decode, other)]
        right = await client.post(alone.url, body)
        assert [answer.text for answer in answers] == [right.text] * 2
        assert read(decode) > 0
        assert other.engine.core.stats.refused_reads == {"unknown": 1}
        assert violations(prefill, decode, other) == []


async def test_a_flag_on_one_side_only_ends_the_turn_at_the_handshake(client: Client) -> None:
    async with (
        running_engine("prefill", connector="DisaggPair", bidirectional=False) as prefill,
        running_engine("decode", connector="DisaggPair") as decode,
    ):
        assert (await Conversation(client, prefill.url, decode.url).say(LONG)).status == 500


async def test_without_the_flag_nothing_is_kept_and_prompts_are_still_compared(
    client: Client,
) -> None:
    one_way: Params = {"connector": "DisaggPair", "bidirectional": False}
    async with (
        running_engine("prefill", **one_way) as prefill,
        running_engine("decode", **one_way) as decode,
    ):
        chat = Conversation(client, prefill.url, decode.url)
        assert (await chat.say(LONG)).params is None
        assert (await chat.say(LONG)).status == 200
        assert decode.engine.core.stats.verified_tokens > 0
        assert decode.engine.core.pool.usage == 0


async def test_an_engine_that_holds_leases_only_does_not_step(
    client: Client, prefill: RunningEngine, decode: RunningEngine
) -> None:
    await first_turn(client, prefill, decode)
    core = decode.engine.core
    assert core.connector.kept == 1
    assert core.next_deadline() is None
    assert not core.must_poll


async def test_a_lease_is_no_reason_to_wait_at_the_end(
    client: Client, prefill: RunningEngine, decode: RunningEngine
) -> None:
    await first_turn(client, prefill, decode)
    async with asyncio.timeout(5):
        await decode.stop(timeout_s=60)


async def leases(client: Client, decode: RunningEngine, key: str = KEY) -> tuple[int, Any]:
    """What D's listener says to a router."""
    connector = decode.engine.core.connector
    assert isinstance(connector, DecodeConnector)
    url = f"http://127.0.0.1:{connector.lease_port}/leases"
    async with client.session.get(url, headers={"Authorization": f"Bearer {key}"}) as response:
        return response.status, await response.json()


async def test_a_router_with_the_key_sees_the_leases(
    client: Client, prefill: RunningEngine, decode: RunningEngine
) -> None:
    _, handle = await first_turn(client, prefill, decode)
    status, body = await leases(client, decode)
    assert status == 200
    assert [lease["id"] for lease in body["leases"]] == [handle["disaggpair"]["lease"]]
    assert (await leases(client, decode, "another"))[0] == 403


async def test_a_claimed_lease_is_read_and_the_old_handle_is_not(
    client: Client, prefill: RunningEngine, decode: RunningEngine
) -> None:
    chat, handle = await first_turn(client, prefill, decode)
    ours = handle["disaggpair"]
    async with client.session.post(
        f"http://127.0.0.1:{ours['port']}/leases/{ours['lease']}/claim",
        json={"for": "read"},
        headers={"Authorization": f"Bearer {KEY}"},
    ) as response:
        claimed = (await response.json())["kv_transfer_params"]
    assert (await second_leg(client, prefill, chat, handle)).status == 200
    assert read(prefill) == 0
    assert (await second_leg(client, prefill, chat, claimed)).status == 200
    assert read(prefill) == handle["remote_num_tokens"]
    assert violations(prefill, decode) == []


async def test_metrics_have_the_names_of_our_connector(
    client: Client, prefill: RunningEngine, decode: RunningEngine
) -> None:
    _, handle = await first_turn(client, prefill, decode)
    await client.prefill(prefill.url, {"messages": [{"role": "user", "content": "x"}]}, handle)
    async with client.session.get(prefill.url + "/metrics") as response:
        page = await response.text()
    assert 'disaggpair:refused_reads_total{engine="0",model_name="toy",reason="tokens"} 1.0' in page
    async with client.session.get(decode.url + "/metrics") as response:
        page = await response.text()
    assert 'disaggpair:leases{engine="0",model_name="toy",state="granted"}' in page
    assert 'disaggpair:leases_ended_total{engine="0",model_name="toy",reason="read"} 0.0' in page
    verified = decode.engine.core.stats.verified_tokens
    assert verified > 0
    assert f'disaggpair:verified_tokens_total{{engine="0",model_name="toy"}} {verified}.0' in page


async def test_what_the_control_endpoints_show_is_settled(
    client: Client, prefill: RunningEngine, decode: RunningEngine
) -> None:
    _, handle = await first_turn(client, prefill, decode)
    await client.prefill(
        prefill.url,
        {"messages": [{"role": "user", "content": "x"}]},
        {**handle, "remote_num_tokens": 0},
    )
    seen: list[dict[str, Any]] = []
    async with asyncio.timeout(5):
        while not seen or seen[-1]["leases"]:
            async with client.session.get(decode.url + "/sim/state") as response:
                seen.append(await response.json())
    assert seen[-1]["free_blocks"] == seen[-1]["blocks"] - 1
    async with client.session.get(decode.url + "/sim/oracle") as response:
        assert (await response.json())["handles"]["released"] == 1
