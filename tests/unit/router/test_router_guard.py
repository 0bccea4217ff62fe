"""Turns that are computed again: wrong KV is found, right KV is not reported."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from disaggpair_bed.leasebench import LeaseBench, lease_bench, tokens_read
from disaggpair_bed.routing import Dialogue, Routed, eventually, routed
from disaggpair_bed.simengine import RunningEngine, running_engine

LONG = "some words that make a prompt of more than sixty-four tokens " * 6
DETAILS = "--enable-prompt-tokens-details"
ALL = {"sample": 1.0}
RESULTS = ("match", "mismatch", "unstable", "uncached", "skipped", "failed")


def checks(front: Routed) -> dict[str, int]:
    found = {one: int(front.count("guard_checks_total", result=one)) for one in RESULTS}
    return {one: number for one, number in found.items() if number}


async def checked(front: Routed, number: int = 1) -> dict[str, int]:
    """The results once there are so many."""
    await eventually(lambda: sum(checks(front).values()) >= number)
    return checks(front)


def forget(engine: RunningEngine) -> None:
    """Push everything out of its prefix cache, so that it has to read."""
    engine.engine.core.reset_prefix_cache()


@pytest.fixture
async def engines() -> AsyncIterator[tuple[RunningEngine, RunningEngine]]:
    async with (
        running_engine("prefill", DETAILS) as prefill,
        running_engine("decode", DETAILS) as decode,
    ):
        yield prefill, decode


@asynccontextmanager
async def guarded(
    engines: tuple[RunningEngine, RunningEngine], **guard: Any
) -> AsyncIterator[Routed]:
    prefill, decode = engines
    async with routed([prefill], [decode], guard={**ALL, **guard}) as front:
        yield front


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_right_kv_is_not_reported(
    engines: tuple[RunningEngine, RunningEngine], stream: bool
) -> None:
    async with guarded(engines) as front:
        talk = Dialogue(front, {"conversation_id": "c"})
        await talk.say(LONG)
        for number in range(1, 6):
            forget(engines[0])
            await talk.say(f"{number} {LONG}", stream=stream)
            assert await checked(front, number) == {"match": number}
        assert front.hits == 5
        assert tokens_read(engines[0]) > 5 * 64


async def texts(front: Routed, prefill: RunningEngine) -> dict[str, int]:
    """Two turns of a text that was not tokenised as D sampled it."""
    body = {"model": "toy", "prompt": LONG, "conversation_id": "c"}
    text = (await front.post("/v1/completions", body)).json["choices"][0]["text"]
    forget(prefill)
    await front.post("/v1/completions", {**body, "prompt": f"{LONG}{text} and {LONG}"})
    assert front.hits == 1
    return await checked(front)


async def test_right_kv_of_text_completions_is_not_reported() -> None:
    async with lease_bench() as bench, bench.router(guard=ALL) as front:
        assert await texts(front, bench.prefill) == {"match": 1}


async def test_reads_that_are_not_verified_as_the_router_was_told_are_found(
    engines: tuple[RunningEngine, RunningEngine], engines_end_well: list[str]
) -> None:
    engines_end_well.append("wrong_kv")
    prefill, decode = engines
    async with routed([prefill], [decode], guard=ALL, kv={"verified_reads": True}) as front:
        assert await texts(front, prefill) == {"mismatch": 1}


async def test_wrong_kv_is_found_and_told(
    engines: tuple[RunningEngine, RunningEngine],
    engines_end_well: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    engines_end_well.append("wrong_kv")
    prefill, _ = engines
    async with guarded(engines) as front:
        talk = Dialogue(front, {"conversation_id": "secret-id"})
        await talk.say(f"secret {LONG}")
        forget(prefill)
        prefill.faults.add("corrupt_read", count=1)
        headers = {"X-Request-Id": "r-2"}
        talk.messages.append({"role": "user", "content": f"two {LONG}"})
        reply = await front.chat(*talk.messages, headers=headers, conversation_id="secret-id")
        assert reply.status == 200, "nothing else tells that the answer is wrong"
        assert await checked(front) == {"mismatch": 1}
    (line,) = [one.getMessage() for one in caplog.records if "wrong KV" in one.getMessage()]
    assert "request=r-2" in line
    assert "conversation=" in line
    assert "secret" not in line


async def test_wrong_kv_behind_verified_reads_is_found(engines_end_well: list[str]) -> None:
    """The digests of tokens agree; what came over the wire does not."""
    engines_end_well.append("wrong_kv")
    ours: dict[str, Any] = {"connector": "DisaggPair", "lease_key": "lease-key-of-the-pair"}
    async with (
        running_engine("prefill", DETAILS, **ours) as prefill,
        running_engine("decode", DETAILS, **ours) as decode,
        LeaseBench(prefill, decode).router(guard=ALL) as front,
    ):
        talk = Dialogue(front, {"conversation_id": "c"})
        await talk.say(LONG)
        forget(prefill)
        prefill.faults.add("corrupt_read", count=1)
        await talk.say(f"two {LONG}")
        assert front.hits == 1
        assert await checked(front) == {"mismatch": 1}


async def test_turns_that_d_computes_alone_are_checked_too() -> None:
    way = {"header": "x-way"}
    async with (
        lease_bench() as bench,
        bench.router(guard=ALL, way=way) as front,
    ):
        talk = Dialogue(front, {"conversation_id": "c"})
        await talk.say(LONG)
        talk.messages.append({"role": "user", "content": "and now?"})
        await front.chat(*talk.messages, conversation_id="c", headers={"x-way": "direct"})
        assert front.count("turns_total", way="DIRECT") == 1
        assert await checked(front) == {"match": 1}


async def test_what_a_client_gets_of_a_checked_turn_is_what_it_gets_of_any() -> None:
    """Nothing of a check is part of the turn: the legs are the same, and so is the answer."""
    plain, sampled = await said(), await said(**ALL)
    assert sampled == plain


async def said(**guard: Any) -> tuple[list[str], list[dict[str, Any]], list[dict[str, Any]]]:
    """The answers of three turns, and the bodies of the legs at P and D."""
    async with (
        running_engine("prefill", DETAILS) as prefill,
        running_engine("decode", DETAILS) as decode,
        routed([prefill], [decode], guard=guard) as front,
    ):
        talk = Dialogue(front, {"conversation_id": "c"})
        texts = []
        for number in range(3):
            texts.append((await talk.say(f"{number} {LONG}", stream=True)).text)
            if guard and number:
                assert await checked(front, number) == {"match": number}
        return texts, legs(prefill), legs(decode)


def legs(engine: RunningEngine) -> list[dict[str, Any]]:
    """Without what is another one's for every request."""
    bodies = [one.body for one in engine.recorder.received]
    return [fields(body) for body in bodies if "kv_transfer_params" in body]


def fields(body: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key != "kv_transfer_params"}


async def test_a_busy_engine_is_not_asked(engines: tuple[RunningEngine, RunningEngine]) -> None:
    async with guarded(engines, max_in_flight=0) as front:
        talk = Dialogue(front, {"conversation_id": "c"})
        await talk.say(LONG)
        endpoints = front.router.parts.endpoints
        decode = next(one for one in endpoints if one.role == "decode")
        with endpoints.reserved(decode):
            await talk.say(f"two {LONG}")
            assert await checked(front) == {"skipped": 1}


async def test_an_engine_that_has_nothing_left_of_the_turn_tells_nothing(
    engines: tuple[RunningEngine, RunningEngine],
) -> None:
    async with (
        running_engine("prefill", DETAILS, "--no-enable-prefix-caching") as prefill,
        running_engine("decode", DETAILS, "--no-enable-prefix-caching") as decode,
        guarded((prefill, decode)) as front,
    ):
        talk = Dialogue(front, {"conversation_id": "c"})
        await talk.say(LONG)
        await talk.say(f"two {LONG}")
        assert await checked(front) == {"uncached": 1}


async def test_engines_that_differ_anyway_are_no_mismatch(engines_end_well: list[str]) -> None:
    """As after an update of the weights of one role."""
    engines_end_well.append("wrong_kv")
    async with (
        running_engine("prefill", DETAILS) as prefill,
        running_engine("decode", DETAILS) as decode,
        guarded((prefill, decode)) as front,
    ):
        talk = Dialogue(front, {"conversation_id": "c"})
        await talk.say(LONG)
        prefill.engine.core.cache.update_weights(2)
        await talk.say(f"two {LONG}")
        assert await checked(front) == {"unstable": 1}


async def test_a_check_that_fails_is_counted_and_the_next_one_runs(
    engines: tuple[RunningEngine, RunningEngine],
) -> None:
    async with guarded(engines) as front:
        talk = Dialogue(front, {"conversation_id": "c"})
        await talk.say(LONG)
        for number in range(2):
            await talk.say(f"{number} {LONG}")
            await checked(front, number + 1)
        assert checks(front) == {"match": 2}
        guard: Any = front.router.parts.guard
        guard._salt = lambda: 1 / 0
        await talk.say(f"three {LONG}")
        assert await checked(front, 3) == {"match": 2, "failed": 1}
        guard._salt = lambda: "new"
        await talk.say(f"four {LONG}")
        assert await checked(front, 4) == {"match": 3, "failed": 1}
        assert not front.router.parts.running.is_broken


async def test_an_engine_that_tells_no_probabilities_fails_the_check_alone(
    engines: tuple[RunningEngine, RunningEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("disaggpair_router.guard.checks.first_token", lambda *_: None)
    async with guarded(engines) as front:
        talk = Dialogue(front, {"conversation_id": "c"})
        await talk.say(LONG)
        assert (await talk.say(f"two {LONG}")).status == 200
        assert await checked(front) == {"failed": 1}


async def test_turns_outside_of_the_sample_are_not_checked(
    engines: tuple[RunningEngine, RunningEngine],
) -> None:
    async with guarded(engines, sample=0.25) as front:
        guard: Any = front.router.parts.guard
        drawn = iter((0.25, 0.9, 0.24))
        guard._random = SimpleNamespace(random=lambda: next(drawn))
        talk = Dialogue(front, {"conversation_id": "c"})
        for number in range(4):
            await talk.say(f"{number} {LONG}")
        assert await checked(front) == {"match": 1}
        assert next(drawn, None) is None


async def test_without_a_sample_nothing_is_asked(
    engines: tuple[RunningEngine, RunningEngine],
) -> None:
    prefill, decode = engines
    async with routed([prefill], [decode]) as front:
        talk = Dialogue(front, {"conversation_id": "c"})
        await talk.say(LONG)
        await talk.say(f"two {LONG}")
        assert (checks(front), front.hits) == ({}, 1)
        assert not front.router.parts.guard.is_on
