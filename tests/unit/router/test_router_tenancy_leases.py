"""Tenants whose conversations D holds under leases, at one router and at another."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from disaggpair_bed.routing import Dialogue, Reply, Routed, eventually, routed
from disaggpair_bed.simengine import running_engine
from disaggpair_router.environment import Environment

KEY = "lease-key-of-the-pair"
LONG = "Tell me of the river and of all the towns that lie on it, one after the other. " * 3


@pytest.fixture
async def routers(tmp_path: Path) -> AsyncIterator[list[Routed]]:
    """Two routers that share the lease key, in front of one pair with our connector."""
    for name in ("a", "b"):
        (tmp_path / name).write_text(hashlib.sha256(f"key-{name}".encode()).hexdigest())
    ours: dict[str, Any] = {"connector": "DisaggPair", "lease_key": KEY}
    async with AsyncExitStack() as stack:
        prefill = await stack.enter_async_context(
            running_engine("prefill", "--no-enable-prefix-caching", **ours)
        )
        decode = await stack.enter_async_context(running_engine("decode", **ours))
        yield [
            await stack.enter_async_context(
                routed(
                    [prefill],
                    [decode],
                    environment=Environment.of({"DISAGGPAIR_LEASE_KEY": KEY}),
                    kv={"leases": {"port": urlsplit(decode.lease_urls[0]).port}},
                    tenants={"directory": str(tmp_path)},
                )
            )
            for _ in range(2)
        ]
        assert prefill.engine.oracle.violations == decode.engine.oracle.violations == []


async def say(dialogue: Dialogue, routed_by: Routed, key: str) -> Reply:
    dialogue.routed = routed_by
    return await dialogue.say(LONG, headers={"Authorization": f"Bearer {key}"})


@pytest.mark.parametrize("fields", [{"conversation_id": "c"}, {}], ids=["id", "history"])
async def test_h77_a_lease_is_found_at_another_router_for_its_tenant_only(
    routers: list[Routed], fields: dict[str, Any]
) -> None:
    first, second = routers
    mine = Dialogue(first, dict(fields))
    assert (await say(mine, first, "key-a")).status == 200
    await eventually(lambda: second.handles == 1)
    assert (await say(mine.copy(), second, "key-b")).status == 200
    assert (second.hits, second.misses) == (0, {"first_turn": 1})
    assert (await say(mine, second, "key-a")).status == 200
    assert second.hits == 1
