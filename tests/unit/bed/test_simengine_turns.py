"""Turns through two simulated engines over real sockets."""

from collections.abc import AsyncIterator
from typing import Literal

import aiohttp
import pytest

from disaggpair_bed.simengine import RunningEngine, running_engine
from disaggpair_bed.simengine.twolegs import Client, Conversation

LONG = "tell me about the rivers of the north " * 12


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with aiohttp.ClientSession() as session:
        yield Client(session)


@pytest.fixture(params=["Nixl", "DisaggPair"])
def connector(request: pytest.FixtureRequest) -> Literal["Nixl", "DisaggPair"]:
    name: Literal["Nixl", "DisaggPair"] = request.param
    return name


@pytest.fixture
async def prefill(connector: Literal["Nixl", "DisaggPair"]) -> AsyncIterator[RunningEngine]:
    flag = "--no-enable-prefix-caching"
    async with running_engine("prefill", flag, connector=connector) as engine:
        yield engine


@pytest.fixture
async def decode(connector: Literal["Nixl", "DisaggPair"]) -> AsyncIterator[RunningEngine]:
    async with running_engine("decode", connector=connector) as engine:
        yield engine


@pytest.mark.parametrize("stream", [False, True])
async def test_five_turns_are_read_from_decode_and_say_what_one_engine_says(
    client: Client, prefill: RunningEngine, decode: RunningEngine, stream: bool
) -> None:
    chat = Conversation(client, prefill.url, decode.url, {"stream": stream})
    async with running_engine("both") as alone:
        for turn in range(5):
            held = chat.handle["remote_num_tokens"] if chat.handle else 0
            before = prefill.engine.core.stats.external_kv_transfer
            answer = await chat.say(f"{turn} {LONG}")
            assert answer.status == 200
            assert answer.finish_reason == "stop"
            assert prefill.engine.core.stats.external_kv_transfer - before == held
            same = await client.post(alone.url, {"messages": chat.messages[:-1]})
            assert same.text == answer.text
    assert prefill.engine.oracle.violations == []
    assert decode.engine.oracle.violations == []
    assert decode.engine.oracle.count("consumed") == 4
    assert decode.engine.oracle.count("live") == 1
    assert prefill.engine.oracle.count("consumed") == 5
