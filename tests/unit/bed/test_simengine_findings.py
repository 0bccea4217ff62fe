"""What a simulated engine is found to have done wrong at the end of a test."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from disaggpair_bed.simengine import running_engine, watched_engines
from disaggpair_bed.simengine.findings import findings, unowned_blocks
from disaggpair_bed.simengine.identity import Adapter, Identity, violation_of
from disaggpair_bed.simengine.localnet import LocalNet
from disaggpair_bed.simengine.localpair import LocalPair, words
from disaggpair_bed.simengine.twolegs import TURN_1, Client


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session:
        yield Client(session)


def kinds(core: Any) -> list[str]:
    return [item.kind for item in core.oracle.violations]


@pytest.mark.parametrize("pair", [None, "decode"])
def test_nothing_is_found_while_blocks_are_kept_in_time(pair: Any) -> None:
    net = LocalNet()
    core = net.engine("D", pair=pair)
    net.ask(core, words(100), {"disaggpair": {}} if pair else {"do_remote_decode": True})
    assert core.connector.kept == 1
    assert core.pool.used_blocks > 0
    assert findings(core, net.now) == []


def test_a_read_for_another_salt_or_tenant_or_adapter_is_a_violation() -> None:
    adapter = Adapter("poet", "/poet")
    for changes, kind in (
        ({"salt": "s"}, "foreign_salt"),
        ({"tenant": "b"}, "foreign_tenant"),
        ({"adapter": adapter}, "wrong_adapter"),
    ):
        net = LocalNet()
        p, d = net.engine("P"), net.engine("D")
        first = net.ask(p, words(600), TURN_1, max_tokens=1, tenant="a")
        leg: dict[str, Any] = {"tenant": "a", **changes}
        net.ask(d, words(600), first.params, **leg)
        assert kinds(p) == [kind]


def test_a_direct_turn_of_another_tenant_is_a_violation() -> None:
    pair = LocalPair()
    following, handle = pair.first_turn()
    claimed = pair.book.claim(handle["disaggpair"]["lease"], "direct")
    direct = {"disaggpair": {"lease": claimed.id, "token": claimed.token}}
    pair.net.ask(pair.d, following, direct, tenant="another")
    assert kinds(pair.d) == ["foreign_tenant"]


def test_our_connector_reads_nothing_of_another_adapter() -> None:
    pair = LocalPair()
    following, handle = pair.first_turn()
    poet = Adapter("poet", "/poet")
    pair.net.ask(pair.p, following, handle, max_tokens=1, adapter=poet)
    assert pair.p.stats.refused_reads == {"tokens": 1}
    assert findings(pair.p, pair.net.now) == findings(pair.d, pair.net.now) == []


def test_adapters_have_kv_and_answers_of_their_own() -> None:
    net = LocalNet()
    core = net.engine("one")
    answers = [
        net.ask(core, words(100), adapter=adapter)
        for adapter in (None, Adapter("poet", "/1"), Adapter("poet", "/2"), Adapter("clerk", "/1"))
    ]
    assert len({tuple(answer.tokens) for answer in answers}) == 4
    assert [answer.cached_tokens for answer in answers] == [0, 0, 0, 0]
    assert net.ask(core, words(100), adapter=Adapter("poet", "/1")).cached_tokens == 96
    assert findings(core, net.now) == []


def test_who_may_use_whose_kv() -> None:
    mine = Identity("poet@/p", "s", "a")
    assert violation_of(mine, mine) is None
    assert violation_of(mine, mine._replace(adapter="")) == "wrong_adapter"
    assert violation_of(mine, mine._replace(salt="")) == "foreign_salt"
    assert violation_of(mine, mine._replace(tenant="b")) == "foreign_tenant"


def test_blocks_without_an_owner_are_counted() -> None:
    net = LocalNet()
    core = net.engine("one")
    core.pool.allocate(3)
    assert unowned_blocks(core) == 3
    assert findings(core, net.now) == ["3 blocks belong to nobody"]
    assert findings(core, net.now, alive=False) == []


def test_a_request_that_nobody_fetches_for_is_found() -> None:
    net = LocalNet()
    core = net.engine("D")
    params = {"do_remote_prefill": True, "remote_block_ids": [[1, 2]], "remote_host": "h"}
    name = net.submit(core, words(100), params)
    net.run()
    assert findings(core, net.now) == [f"parked for ever: {name}"]


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_what_outlives_its_time_is_found(role: str) -> None:
    pair = LocalPair()
    core = pair.p if role == "prefill" else pair.d
    _, handle = pair.first_turn()
    if role == "prefill":
        pair.net.ask(pair.p, words(100), TURN_1, max_tokens=1)
        (lease,) = core.connector.leases
        lease.deadline = None
        assert findings(core, pair.net.now) == [f"kept beyond its time: {lease.request_id}"]
    else:
        kept = core.connector.__dict__["_lease_of"]
        kept[handle["remote_request_id"]] = "a lease that is none"
        found = findings(core, pair.net.now)
        assert found == [f"kept beyond its time: {handle['remote_request_id']}"]


async def test_findings_are_kept_when_an_engine_stops(client: Client) -> None:
    with watched_engines() as engines:
        async with running_engine("decode") as engine:
            engine.engine.core.pool.allocate(1)
            async with client.session.get(engine.url + "/sim/oracle") as response:
                assert (await response.json())["findings"] == ["1 blocks belong to nobody"]
        async with running_engine("decode", "-dp", "2") as other:
            other.engine.oracle.violation("something", "r", "bad")
            await other.restart()
    assert engines == [engine, other]
    assert engine.findings == ["1 blocks belong to nobody"]
    assert other.findings == ["something by r bad"]


async def test_a_dead_engine_answers_for_its_reads_only(client: Client) -> None:
    async with running_engine("decode") as engine:
        engine.engine.core.pool.allocate(1)
        engine.engine.crash("a test")
    assert engine.findings == []
