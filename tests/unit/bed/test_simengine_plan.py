"""What the operator renders for a pair, run: two simulated engines and a router in front."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import orjson
import pytest

from disaggpair_bed.builders import owner, pair, planned
from disaggpair_bed.routing import Dialogue, Routed, routed
from disaggpair_bed.simengine import RunningEngine
from disaggpair_bed.simengine.commandline import parse_command_line
from disaggpair_connector.contract import LEASE_KEY_ENV
from disaggpair_operator.model import Facts
from disaggpair_operator.plan import desired
from disaggpair_router.environment import Environment

LONG = "some words that make a prompt of more than sixty-four tokens " * 20
FACTS = Facts(router_image="example/disaggpair", bind="PodIP")
SPEC = {
    "model": {"name": "toy"},
    "fabric": {"type": "TCP"},
    "prefill": {"prefixCaching": False},
    "kvTransfer": {"blockSize": 32, "decodeTTLSeconds": 7200},
    "router": {"handleTTLSeconds": 7000},
}
KEYS = {LEASE_KEY_ENV: "what-the-secret-of-the-pair-holds"}


@asynccontextmanager
async def started(deployment: Mapping[str, Any], address: str) -> AsyncIterator[RunningEngine]:
    """The engine of a Deployment on a loopback address of its own, on the ports that it names."""
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    environ = {
        entry["name"]: entry.get("value", KEYS.get(entry["name"], address))
        for entry in container["env"]
    }
    argv = [text.replace("$(POD_IP)", address) for text in container["args"]]
    engine = RunningEngine(replace(parse_command_line(argv, environ), control=True))
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()


@asynccontextmanager
async def running(
    connector: str,
) -> AsyncIterator[tuple[RunningEngine, RunningEngine, Routed]]:
    plan = desired(pair({**SPEC, "engine": {"connector": connector}}), owner(), FACTS)
    config = orjson.loads(planned(plan, "ConfigMap", "router")["data"]["router.json"])
    # Of this process alone, since the ports are those of the plan.
    network = f"127.{64 + os.getpid() % 128}.{os.getpid() >> 7 & 255}"
    async with (
        started(planned(plan, "Deployment", "prefill"), f"{network}.4") as prefill,
        started(planned(plan, "Deployment", "decode"), f"{network}.5") as decode,
        routed([prefill], [decode], environment=Environment.of(KEYS), kv=config["kv"]) as front,
    ):
        yield prefill, decode, front
        engines = (prefill.engine, decode.engine)
        assert [engine.oracle.violations for engine in engines] == [[], []]


@pytest.mark.parametrize("connector", ["DisaggPair", "Nixl"])
async def test_later_turns_are_read_from_d_as_rendered(connector: str) -> None:
    async with running(connector) as (prefill, decode, front):
        dialogue = Dialogue(front, {"conversation_id": "c-1", "stream": True})
        for number in range(3):
            assert (await dialogue.say(f"{number} {LONG}")).status == 200
        assert front.hits == 2
        assert prefill.engine.core.stats.external_kv_transfer > 0
        assert decode.engine.oracle.count("consumed") == 2


async def test_a_lease_that_is_gone_costs_a_recompute_and_no_error() -> None:
    async with running("DisaggPair") as (prefill, decode, front):
        dialogue = Dialogue(front, {"conversation_id": "c-1"})
        assert (await dialogue.say(LONG)).status == 200
        decode.engine.core.reset_prefix_cache()
        assert (await dialogue.say(LONG)).status == 200
        # The router hears of it from D, at the latest when it claims the lease.
        assert (front.hits, sum(front.misses.values())) == (0, 2)
        assert prefill.engine.core.stats.refused_reads == {}
