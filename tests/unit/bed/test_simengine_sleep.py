"""Sleep, new weights and adapters of a simulated engine."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from disaggpair_bed.leaseview import LeaseView
from disaggpair_bed.simengine import RunningEngine, running_engine
from disaggpair_bed.simengine.commandline import parse_command_line
from disaggpair_bed.simengine.identity import Adapter
from disaggpair_bed.simengine.twolegs import TURN_1, Client, Conversation, until

KEY = "a key of the router"
OURS: dict[str, Any] = {"connector": "DisaggPair", "lease_key": KEY}
LONG: dict[str, Any] = {
    "messages": [{"role": "user", "content": "about the rivers of the north " * 40}]
}


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session:
        yield Client(session)


async def tell(client: Client, engine: RunningEngine, path: str) -> Any:
    async with client.session.post(engine.url + path) as response:
        return response.status, await response.json()


async def test_a_nap_loses_the_kv_and_ends_the_leases(client: Client) -> None:
    async with (
        running_engine("prefill", "--no-enable-prefix-caching", **OURS) as prefill,
        running_engine("decode", **OURS) as decode,
    ):
        first = await client.turn(prefill.url, decode.url, LONG)
        assert first.params is not None
        leases = LeaseView(client.session, decode.lease_urls[0], KEY)
        before = await leases.listing()
        status, body = await tell(client, decode, "/sleep?level=1")
        assert (status, body) == (200, {"status": "sleeping", "level": 1})
        assert (await leases.until("ended", before["sequence"]))["reason"] == "reset"
        await tell(client, decode, "/wake_up")
        late = await client.prefill(prefill.url, LONG, first.params)
        assert late.status == 200
        assert prefill.engine.core.stats.refused_reads == {"unknown": 1}
        again = await client.turn(prefill.url, decode.url, LONG)
        assert again.text == first.text
        assert again.params is not None
        grown = again.params["remote_registration_generation"]
        assert grown == first.params["remote_registration_generation"] + 1
        assert decode.engine.core.stats.local_cache_hit == 0
    assert prefill.findings == decode.findings == []


async def test_h41_a_d_that_goes_to_sleep_waits_for_who_reads(client: Client) -> None:
    async with (
        running_engine("prefill", "--no-enable-prefix-caching", **OURS) as prefill,
        running_engine("decode", **OURS) as decode,
    ):
        first = await client.turn(prefill.url, decode.url, LONG)
        prefill.faults.add("slow_read", delay_s=0.3)
        reads = asyncio.create_task(client.prefill(prefill.url, LONG, first.params))
        await until(lambda: prefill.engine.core.reading)
        await tell(client, decode, "/sleep?level=1")
        assert prefill.engine.core.reading == 0
        await tell(client, decode, "/wake_up")
        assert (await reads).status == 200
        assert prefill.engine.core.stats.external_kv_transfer > 0
    assert prefill.findings == decode.findings == []


async def test_h41_a_p_that_goes_to_sleep_waits_for_who_reads_and_for_its_leases(
    client: Client,
) -> None:
    extra = {"kv_lease_duration": 3}
    async with (
        running_engine("prefill", extra=extra, **OURS) as prefill,
        running_engine("decode", **OURS) as decode,
    ):
        offer = await client.prefill(prefill.url, LONG)
        unread = await client.prefill(prefill.url, {"messages": [{"role": "user", "content": "a"}]})
        assert unread.params is not None
        decode.faults.add("slow_read", delay_s=0.3)
        leg = {**LONG, "kv_transfer_params": offer.params}
        answer = asyncio.create_task(client.post(decode.url, leg))
        await until(lambda: decode.engine.core.reading)
        await tell(client, prefill, "/sleep?level=1")
        assert len(prefill.engine.core.connector.leases) == 0
        await tell(client, prefill, "/wake_up")
        assert (await answer).status == 200
        assert decode.engine.core.stats.external_kv_transfer > 0
    assert prefill.findings == decode.findings == []


async def test_requests_wait_while_an_engine_sleeps(client: Client) -> None:
    async with running_engine() as engine:
        await tell(client, engine, "/sleep?level=0")
        async with client.session.get(engine.url + "/is_sleeping") as response:
            assert await response.json() == {"is_sleeping": True}
        asked = asyncio.create_task(client.post(engine.url, LONG))
        await until(lambda: engine.ranks.in_flight)
        async with client.session.get(engine.url + "/health") as response:
            assert response.status == 200
        await tell(client, engine, "/wake_up")
        assert (await asked).status == 200
        assert (await tell(client, engine, "/sleep?level=3"))[0] == 400


async def test_what_runs_is_aborted_by_a_sleep(client: Client) -> None:
    async with running_engine("both", "--sim-token-s", "0.01") as engine:
        asked = asyncio.create_task(client.post(engine.url, {**LONG, "kv_transfer_params": TURN_1}))
        await until(lambda: engine.ranks.in_flight)
        await tell(client, engine, "/sleep")
        answer = await asked
        assert (answer.finish_reason, answer.params) == ("abort", None)
        assert engine.engine.core.pool.usage == 0


async def test_a_read_of_what_a_plain_engine_lost_in_its_sleep_is_a_violation(
    client: Client,
) -> None:
    async with running_engine("prefill") as prefill, running_engine("decode") as decode:
        first = await client.prefill(prefill.url, LONG)
        await tell(client, prefill, "/sleep")
        await tell(client, prefill, "/wake_up")
        await client.post(decode.url, {**LONG, "kv_transfer_params": first.params})
        kinds = [item.kind for item in prefill.engine.oracle.violations]
        assert kinds == ["use_after_sleep"]


async def test_a_paused_engine_refuses_until_it_goes_on(client: Client) -> None:
    async with running_engine() as engine:
        await tell(client, engine, "/pause?clear_cache=false")
        assert (await client.post(engine.url, LONG)).status == 503
        await tell(client, engine, "/resume")
        assert (await client.post(engine.url, LONG)).status == 200
        await tell(client, engine, "/pause")
        await tell(client, engine, "/resume")
        assert engine.engine.core.stats.local_cache_hit == 0


async def test_other_weights_answer_otherwise_and_old_kv_is_a_violation(client: Client) -> None:
    async with running_engine() as engine:
        before = await client.post(engine.url, LONG)
        assert (await tell(client, engine, "/update_weights"))[0] == 200
        assert (await tell(client, engine, "/reset_prefix_cache"))[1] == {"success": True}
        after = await client.post(engine.url, LONG)
        assert before.text != after.text
        assert engine.engine.oracle.violations == []
        await tell(client, engine, "/update_weights")
        await client.post(engine.url, LONG)
        kinds = {item.kind for item in engine.engine.oracle.violations}
        assert kinds == {"wrong_kv_in_prefix_cache"}


async def test_the_routes_are_there_in_development_only(client: Client) -> None:
    async with (
        running_engine(control=False) as engine,
        client.session.post(engine.url + "/sleep") as response,
    ):
        assert response.status == 404
    assert parse_command_line(["m"], {"VLLM_SERVER_DEV_MODE": "1"}).development


# Adapters.


async def test_adapters_are_models_with_answers_of_their_own(client: Client) -> None:
    names = ("--served-model-name", "toy", "alias", "--enable-lora", "--lora-modules")
    flags = (*names, "poet=/adapters/poet", '{"name":"clerk","path":"/clerk"}')
    async with running_engine("both", *flags) as engine:
        async with client.session.get(engine.url + "/v1/models") as response:
            cards = (await response.json())["data"]
        assert [(card["id"], card["parent"]) for card in cards] == [
            ("toy", None),
            ("alias", None),
            ("poet", "toy"),
            ("clerk", "toy"),
        ]
        texts = {
            name: (await client.post(engine.url, {**LONG, "model": name})).text
            for name in ("toy", "alias", "poet", "clerk")
        }
        assert texts["toy"] == texts["alias"]
        assert len(set(texts.values())) == 3
        assert (await client.post(engine.url, {**LONG, "model": "no"})).status == 404


async def test_a_conversation_with_an_adapter_is_read_like_any_other(client: Client) -> None:
    lora = ("--lora-modules", "poet=/poet")
    async with (
        running_engine("prefill", "--no-enable-prefix-caching", *lora, **OURS) as prefill,
        running_engine("decode", *lora, **OURS) as decode,
        running_engine("both", *lora) as alone,
    ):
        chat = Conversation(client, prefill.url, decode.url, {"model": "poet"})
        for number in range(3):
            answer = await chat.say(f"{number} " + "and the rivers of the north " * 20)
            body = {"model": "poet", "messages": chat.messages[:-1]}
            assert (await client.post(alone.url, body)).text == answer.text
        assert prefill.engine.core.stats.external_kv_transfer > 0
    assert prefill.findings == decode.findings == []


async def test_legs_of_two_adapters_or_tenants_are_violations(client: Client) -> None:
    lora = ("--lora-modules", "poet=/poet")
    async with (
        running_engine("prefill", *lora) as prefill,
        running_engine("decode", *lora) as decode,
    ):
        for p_leg, d_leg in (
            ({"model": "poet"}, {}),
            ({"sim_tenant": "a"}, {"sim_tenant": "b"}),
            ({"cache_salt": "a"}, {}),
        ):
            first = await client.prefill(prefill.url, {**LONG, **p_leg})
            leg = {**LONG, **d_leg, "kv_transfer_params": first.params}
            await client.post(decode.url, leg)
            decode.engine.core.reset_prefix_cache()
        kinds = [item.kind for item in prefill.engine.oracle.violations]
        assert kinds == ["wrong_adapter", "foreign_tenant", "foreign_salt"]


def test_an_adapter_needs_a_name_and_a_path(capsys: pytest.CaptureFixture[str]) -> None:
    options = parse_command_line(["m", "--lora-modules", "a=b=c"], {})
    assert options.adapters == (Adapter("a", "b=c"),)
    with pytest.raises(SystemExit):
        parse_command_line(["m", "--lora-modules", "poet"], {})
    assert "'poet' is not NAME=PATH" in capsys.readouterr().err
