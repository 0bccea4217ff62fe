"""An engine that takes requests and answers none gets no turns; a busy one does."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from disaggpair_bed.routing import Routed, eventually, routed
from disaggpair_bed.simengine import running_engine
from disaggpair_router.canary import Canary

QUICK = {"canary_s": 0.05, "canary_limit_s": 0.2, "prefill_s": 0.5}


@asynccontextmanager
async def two_ps(**timeouts: Any) -> AsyncIterator[tuple[Any, Any, Routed]]:
    """Two prefill engines and a decode engine behind a router."""
    async with (
        running_engine("prefill") as one,
        running_engine("prefill") as other,
        running_engine("decode") as decode,
        routed([one, other], [decode], timeouts={**QUICK, **timeouts}) as front,
    ):
        yield one, other, front


def stuck(front: Routed) -> set[str]:
    registry = front.router.parts.endpoints
    return {endpoint.url for endpoint in registry if registry.is_stuck(endpoint)}


async def test_h32_h99_a_p_that_hangs_while_its_health_is_fine_gets_no_turns(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "disaggpair_router.canary")
    async with two_ps() as (one, _, front):
        one.faults.add("hang", count=None)
        await eventually(lambda: stuck(front) == {one.url})
        assert all(endpoint.ready for endpoint in front.router.parts.endpoints)
        for number in range(4):
            reply = await front.chat("hello", conversation_id=str(number))
            assert reply.status == 200
        assert front.count("turns_total", way="FULL") == 4
        one.faults.clear()
        await eventually(lambda: stuck(front) == set())
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert "answers nothing any more" in said[0]
    assert "answers again" in said[1]


async def test_an_engine_that_answers_others_is_busy_and_not_stuck() -> None:
    async with two_ps(canary_s=0) as (one, _, front):
        parts = front.router.parts
        slow = next(endpoint for endpoint in parts.endpoints if endpoint.url == one.url)
        one.faults.add("hang", count=None)
        canary = Canary(
            engines=parts.engines,
            endpoints=parts.endpoints,
            headers={},
            every_s=1,
            limit_s=0.1,
            clock=front.clock,
        )
        front.clock.offset = 100  # somebody gets an answer while the canary waits
        parts.endpoints.answered(slow)
        front.clock.offset = 0
        await canary.check(slow)
        assert stuck(front) == set()
        front.clock.offset = 200
        await canary.check(slow)
        assert stuck(front) == {one.url}


async def test_an_engine_that_refuses_the_request_answers() -> None:
    async with two_ps() as (one, _, front):
        one.faults.add("status", status=401, count=None)
        await eventually(lambda: one.recorder.received)
        assert stuck(front) == set()


async def test_a_new_life_of_an_engine_is_not_stuck() -> None:
    async with two_ps() as (one, _, front):
        one.faults.add("hang", count=None)
        await eventually(lambda: stuck(front) == {one.url})
        one.faults.clear()
        await one.restart()
        await eventually(lambda: stuck(front) == set())


async def test_engines_that_have_just_answered_are_not_asked() -> None:
    async with two_ps(canary_s=60) as (one, other, front):
        for number in range(4):
            await front.chat("hello", conversation_id=str(number))
        received = [*one.recorder.received, *other.recorder.received]
        assert {post.path for post in received} == {"/v1/chat/completions"}
