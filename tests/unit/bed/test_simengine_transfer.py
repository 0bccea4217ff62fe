"""Transfers between simulated engines that went wrong on the way."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from disaggpair_bed.simengine import RunningEngine, running_engine
from disaggpair_bed.simengine.release import Release
from disaggpair_bed.simengine.twolegs import TURN_1, Answer, Client, Conversation, until

LONG = "tell me about the rivers of the north " * 12
RECOMPUTE = {"kv_load_failure_policy": "recompute"}


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session:
        yield Client(session)


@pytest.fixture
async def prefill() -> AsyncIterator[RunningEngine]:
    async with running_engine("prefill", "--no-enable-prefix-caching") as engine:
        yield engine


async def handle_of(
    client: Client, prefill: RunningEngine, decode: RunningEngine
) -> dict[str, Any]:
    """D's handle after a first turn."""
    answer = await Conversation(client, prefill.url, decode.url).say(LONG)
    assert answer.params is not None
    return answer.params


async def second_leg(
    client: Client, prefill: RunningEngine, handle: dict[str, Any], *, stream: bool = False
) -> Answer:
    """A P leg that has to read D's handle."""
    body = {
        "messages": [{"role": "user", "content": LONG * 2}],
        "stream": stream,
        "max_tokens": 1,
        "kv_transfer_params": handle,
    }
    return await client.post(prefill.url, body)


async def test_a_restarted_d_has_a_new_id_and_its_old_handle_fails(
    client: Client, prefill: RunningEngine
) -> None:
    async with running_engine("decode") as decode:
        handle = await handle_of(client, prefill, decode)
    async with running_engine("decode") as decode:
        moved = {**handle, "remote_port": decode.engine.port}
        answer = await second_leg(client, prefill, moved)
        assert answer.status == 500
        assert answer.error is not None
        assert answer.error["message"] == "Internal server error"
        assert prefill.engine.core.stats.failed_transfers == 1
        again = await Conversation(client, prefill.url, decode.url).say(LONG)
        assert again.status == 200
    assert decode.engine.oracle.violations == []


async def test_a_pinned_id_hides_a_restart_from_everybody_but_the_oracle(
    client: Client, prefill: RunningEngine
) -> None:
    pinned = {"engine_id": "always-the-same"}
    async with running_engine("decode", transfer=pinned) as decode:
        handle = await handle_of(client, prefill, decode)
    async with running_engine("decode", transfer=pinned) as decode:
        answer = await second_leg(client, prefill, {**handle, "remote_port": decode.engine.port})
        assert answer.status == 200
    assert [item.kind for item in decode.engine.oracle.violations] == ["unknown_handle"]
    assert "wrong_kv_read" in [item.kind for item in prefill.engine.oracle.violations]


async def test_a_failed_read_is_an_error_event_in_a_stream(
    client: Client, prefill: RunningEngine
) -> None:
    async with running_engine("decode") as decode:
        handle = await handle_of(client, prefill, decode)
    answer = await second_leg(client, prefill, handle, stream=True)
    assert answer.status == 200
    assert answer.error is not None
    assert answer.done


async def test_a_dead_d_hangs_a_cold_p_under_recompute_and_a_retry_without_handle_works(
    client: Client,
) -> None:
    async with running_engine(
        "prefill", "--no-enable-prefix-caching", transfer=RECOMPUTE
    ) as prefill:
        async with running_engine("decode") as decode:
            handle = await handle_of(client, prefill, decode)
        session = client.session
        body = {
            "messages": [{"role": "user", "content": LONG * 2}],
            "max_tokens": 1,
        }
        url = prefill.url + client.path
        with pytest.raises(TimeoutError):
            await session.post(
                url,
                json={**body, "kv_transfer_params": handle},
                timeout=aiohttp.ClientTimeout(total=0.3),
            )
        assert (await client.prefill(prefill.url, body)).status == 200
        await until(lambda: not prefill.engine.in_flight)


@pytest.mark.parametrize("release", ["0.32.0", "0.33.1"])
async def test_another_version_is_refused_at_every_handshake(
    client: Client, prefill: RunningEngine, release: str
) -> None:
    async with running_engine("decode", release=release) as decode:
        first = await Conversation(client, prefill.url, decode.url).say(LONG)
        assert first.status == 500
        again = await Conversation(client, prefill.url, decode.url).say(LONG)
        assert again.status == 500
        assert decode.engine.core.stats.failed_transfers == 2


async def test_another_model_name_is_refused(client: Client, prefill: RunningEngine) -> None:
    async with running_engine("decode", "--served-model-name", "toy", model="a/toy") as decode:
        assert (await Conversation(client, prefill.url, decode.url).say(LONG)).status == 500


async def test_another_block_size_is_refused(client: Client, prefill: RunningEngine) -> None:
    async with running_engine("decode", "--block-size", "32") as decode:
        assert (await Conversation(client, prefill.url, decode.url).say(LONG)).status == 500


async def test_a_block_outside_the_pool_fails_the_read(
    client: Client, prefill: RunningEngine
) -> None:
    async with running_engine("decode") as decode:
        handle = await handle_of(client, prefill, decode)
        count = len(handle["remote_block_ids"][0])
        bad = {**handle, "remote_block_ids": [[10**9] * count]}
        assert (await second_leg(client, prefill, bad)).status == 500
        assert decode.engine.oracle.count("live") == 1


@pytest.mark.parametrize(
    ("release", "status", "expired", "failed"),
    [("0.25.1", 200, 0, 0), ("0.26.0", 500, 1, 1), ("0.31.0", 500, 1, 0), ("0.33.0", 500, 1, 0)],
)
async def test_a_handle_with_less_than_the_margin_left(
    client: Client, release: str, status: int, expired: int, failed: int
) -> None:
    async with (
        running_engine("prefill", "--no-enable-prefix-caching", release=release) as prefill,
        running_engine("decode", release=release, extra={"decoder_kv_blocks_ttl": 4}) as decode,
    ):
        handle = await handle_of(client, prefill, decode)
        answer = await second_leg(client, prefill, handle)
        assert answer.status == status
        assert prefill.engine.core.stats.expired_requests == expired
        assert prefill.engine.core.stats.failed_transfers == failed


async def test_leases_expire_without_any_request(client: Client, prefill: RunningEngine) -> None:
    async with running_engine("decode", extra={"decoder_kv_blocks_ttl": 0.05}) as decode:
        await handle_of(client, prefill, decode)
        await until(lambda: decode.engine.oracle.count("expired") == 1)
        assert decode.engine.core.pool.usage == 0


async def test_d_renews_the_lease_of_p_while_a_request_waits_for_blocks(client: Client) -> None:
    short = {"kv_lease_duration": 3}
    async with (
        running_engine("prefill", extra=short) as prefill,
        running_engine("decode", "--num-gpu-blocks-override", "22", extra=short) as decode,
    ):
        await Conversation(client, prefill.url, decode.url).say(LONG * 2)
        body = {"messages": [{"role": "user", "content": "other " + LONG}]}
        first = await client.prefill(prefill.url, body)
        assert first.params is not None
        lease = prefill.engine.core.connector.leases.get(first.params["remote_request_id"])
        assert lease is not None
        deadline = lease.deadline
        leg = {**body, "kv_transfer_params": first.params}
        waiting = asyncio.create_task(client.post(decode.url, leg))
        await until(lambda: lease.deadline != deadline)
        assert decode.engine.core.waiting == 1
        waiting.cancel()
        await until(lambda: prefill.engine.oracle.count("live") == 0)


async def test_the_release_trick_frees_d_at_once(client: Client, prefill: RunningEngine) -> None:
    async with running_engine("decode") as decode:
        handle = await handle_of(client, prefill, decode)
        body = {"messages": [{"role": "user", "content": "x"}]}
        answer = await client.prefill(prefill.url, body, {**handle, "remote_num_tokens": 0})
        assert answer.status == 200
        await until(lambda: decode.engine.oracle.count("released") == 1)
        assert decode.engine.core.pool.usage == 0


async def test_a_refused_d_leg_frees_p(client: Client, prefill: RunningEngine) -> None:
    first = await client.prefill(prefill.url, {"messages": [{"role": "user", "content": LONG}]})
    async with running_engine("decode") as decode:
        body = {"messages": "broken", "kv_transfer_params": first.params}
        assert (await client.post(decode.url, body)).status == 400
        await until(lambda: prefill.engine.oracle.count("released") == 1)


async def test_children_of_one_request_read_the_same_blocks_twice(
    client: Client, prefill: RunningEngine
) -> None:
    body = {"messages": [{"role": "user", "content": LONG}]}
    first = await client.prefill(prefill.url, body)
    async with running_engine("decode") as decode:
        await client.post(decode.url, {**body, "n": 2, "kv_transfer_params": first.params})
    assert [item.kind for item in prefill.engine.oracle.violations] == ["second_use"]


async def test_a_client_that_leaves_during_a_read_is_seen(client: Client) -> None:
    slow = ("--no-enable-prefix-caching", "--sim-transfer-block-s", "0.05")
    async with running_engine("prefill", *slow) as prefill, running_engine("decode") as decode:
        handle = await handle_of(client, prefill, decode)
        body = {"messages": [{"role": "user", "content": LONG * 2}], "max_tokens": 1}
        with pytest.raises(TimeoutError):
            await client.session.post(
                prefill.url + client.path,
                json={**body, "kv_transfer_params": handle},
                timeout=aiohttp.ClientTimeout(total=0.2),
            )
        await until(lambda: prefill.engine.oracle.violations)
        assert [item.kind for item in prefill.engine.oracle.violations] == ["abort_during_read"]
        await until(lambda: prefill.engine.core.pool.usage == 0)


async def test_work_takes_the_time_it_is_given(client: Client) -> None:
    costs = ("--sim-prefill-tokens-per-s", "1000", "--sim-token-s", "0.01")
    async with running_engine("both", *costs) as engine:
        clock = engine.engine.core.stats
        body = {"messages": [{"role": "user", "content": "abcd" * 100}], "max_tokens": 6}
        took = await timed(client.post(engine.url, {**body, "ignore_eos": True}))
        assert took >= 0.11 + 5 * 0.01
        assert clock.generation_tokens == 6


async def timed(request: Any) -> float:
    """Seconds that a request takes."""
    began = time.monotonic()
    await request
    return time.monotonic() - began


async def test_an_engine_without_a_connector_pins_nothing(client: Client) -> None:
    async with running_engine() as engine:
        plain = replace(
            engine.options, transfer=None, core=replace(engine.options.core, transfer=None)
        )
    alone = RunningEngine(plain)
    await alone.start()
    try:
        body = {"messages": [{"role": "user", "content": LONG}], "kv_transfer_params": TURN_1}
        answer = await client.post(alone.url, body)
        assert answer.status == 200
        assert answer.params is None
    finally:
        await alone.stop()


def test_every_simulated_release_has_a_protocol_version() -> None:
    versions = [Release.parse(f"0.{minor}.0").connector_version for minor in range(21, 34)]
    assert versions == [3, 4, 4, 4, 4, 5, 5, 7, 9, 11, 13, 14, 15]
