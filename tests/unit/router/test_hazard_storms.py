"""Engines that have too much to do: what is repeated, where, and how often (h95, h97)."""

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disaggpair_bed.fakes.upstream import (
    decoding,
    engine_ids,
    failing,
    in_turn,
    prefilling,
    scripted_engine,
    streams,
)
from disaggpair_bed.routing import routed, waiting_dialogue
from disaggpair_router.pick import Choice, Endpoint, pick
from disaggpair_router.pool import NoRoom, Pool
from disaggpair_router.retries import RetryBudget

P = Endpoint("p", "http://p", "prefill", ready=True)
D1 = Endpoint("d1", "http://d1", "decode", ready=True)
D2 = replace(D1, name="d2", url="http://d2")


# h95: a budget of second attempts


def test_h95_second_attempts_have_a_budget_that_fills_with_time() -> None:
    now = [0.0]
    budget = RetryBudget(4.0, lambda: now[0])
    assert [budget.take() for _ in range(5)] == [True] * 4 + [False]
    now[0] += 0.5
    assert [budget.take() for _ in range(3)] == [True, True, False]
    now[0] += 1_000
    assert [budget.take() for _ in range(5)] == [True] * 4 + [False]


def test_h95_less_than_one_a_second_is_one_now_and_then() -> None:
    now = [0.0]
    budget = RetryBudget(0.1, lambda: now[0])
    assert [budget.take() for _ in range(2)] == [True, False]
    now[0] += 10
    assert budget.take()
    assert not RetryBudget(0, lambda: now[0]).take()


@given(
    st.floats(0.1, 50),
    st.lists(st.floats(0, 3), max_size=60),
)
def test_h95_a_budget_is_never_exceeded(per_s: float, pauses: list[float]) -> None:
    now = [0.0]
    budget = RetryBudget(per_s, lambda: now[0])
    taken = 0
    for pause in pauses:
        now[0] += pause
        taken += budget.take()
    assert taken <= max(1.0, per_s) + now[0] * per_s + 1e-6


async def test_h95_a_burst_at_engines_that_fail_is_not_doubled() -> None:
    async with (
        scripted_engine(failing(500)) as first,
        scripted_engine(failing(500)) as second,
        scripted_engine(decoding()) as decode,
        routed([first, second], [decode], limits={"retries_per_s": 3}) as front,
    ):
        replies = await asyncio.gather(*(front.chat(f"hello {n}") for n in range(30)))
        assert [reply.status for reply in replies] == [200] * 30
        sent = len(first.requests) + len(second.requests)
        repeated = front.count("retries_total", leg="prefill")
        assert sent == 30 + repeated
        assert repeated + front.count("retries_refused_total", leg="prefill") == 30
        assert repeated < 20


async def test_h95_the_same_budget_holds_for_decode_legs() -> None:
    busy = failing(503, **{"Retry-After": "7"})
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(busy) as first,
        scripted_engine(busy) as second,
        routed([prefill], [first, second], limits={"retries_per_s": 0}) as front,
    ):
        reply = await front.chat("hello")
        assert (reply.status, reply.headers["Retry-After"]) == (503, "7")
        assert len(first.requests) + len(second.requests) == 1
        assert front.count("retries_refused_total", leg="decode") == 1


# h95: Retry-After


@pytest.mark.parametrize("fallback", ["Refuse", "SingleEngine"])
async def test_h95_a_prefill_that_asks_for_time_gets_no_second_attempt(fallback: str) -> None:
    busy = failing(503, **{"Retry-After": "9"})
    async with (
        scripted_engine(in_turn(prefilling(), busy)) as prefill,
        scripted_engine(decoding()) as decode,
        routed([prefill], [decode], fallback=fallback) as front,
    ):
        dialogue = await waiting_dialogue(front)
        reply = await dialogue.say("two")
        assert engine_ids(prefill)[:2] == [None, "D-engine"]
        assert front.count("retries_total", leg="prefill") == 0
        if fallback == "Refuse":
            assert (reply.status, reply.headers["Retry-After"]) == (503, "9")
        else:
            assert reply.status == 200
            assert engine_ids(decode)[-1] == "absent"


async def test_h95_an_engine_that_asks_for_time_is_left_alone_while_there_is_another() -> None:
    busy = failing(503, **{"Retry-After": "9"})
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(in_turn(busy, decoding())) as first,
        scripted_engine(decoding()) as second,
        routed([prefill], [first, second], timeouts={"probe_s": 3600}) as front,
    ):
        endpoints = front.router.parts.endpoints
        other = next(item for item in endpoints if item.url == second.url)
        with endpoints.reserved(other):
            for number in range(5):
                assert (await front.chat(f"hello {number}")).status == 200
            assert (len(first.requests), len(second.requests)) == (1, 5)
            front.clock.offset += 10
            assert (await front.chat("later")).status == 200
            assert len(first.requests) == 2


async def test_h95_the_only_engine_is_asked_again_although_it_asked_for_time() -> None:
    busy = failing(503, **{"Retry-After": "3000"})
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(in_turn(busy, decoding())) as decode,
        routed([prefill], [decode]) as front,
    ):
        assert (await front.chat("a")).status == 503
        assert (await front.chat("b")).status == 200


async def test_h95_a_429_is_the_clients_with_its_retry_after() -> None:
    async with (
        scripted_engine(failing(429, **{"Retry-After": "4"})) as prefill,
        scripted_engine(decoding()) as decode,
        routed([prefill], [decode]) as front,
    ):
        reply = await front.chat("a")
        assert (reply.status, reply.headers["Retry-After"]) == (429, "4")
        assert len(prefill.requests) == 1
        assert decode.requests == []


@pytest.mark.parametrize("status", [429, 503])
async def test_h95_a_retry_after_that_is_no_time_is_passed_over(status: int) -> None:
    async with (
        scripted_engine(failing(status, **{"Retry-After": "9" * 5_000})) as prefill,
        scripted_engine(decoding()) as decode,
        routed([prefill], [decode], fallback="Refuse") as front,
    ):
        reply = await front.chat("a")
        assert reply.status == status
        assert reply.headers.get("Retry-After") in (None, "1")


async def test_h95_a_router_without_descriptors_blames_no_engine_and_keeps_the_handle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(decoding()) as decode,
        routed([prefill], [decode], timeouts={"probe_s": 3600}) as front,
    ):
        dialogue = await waiting_dialogue(front)
        front.router.parts.engines.pool.close()

        async def no_room(*_: object) -> None:
            raise NoRoom

        with monkeypatch.context() as full:
            full.setattr(Pool, "take", no_room)
            reply = await dialogue.copy().say("two")
        assert (reply.status, reply.json["error"]["code"]) == (503, "overloaded")
        assert front.router.parts.endpoints.can_serve
        assert (await dialogue.say("two")).status == 200
        assert engine_ids(prefill) == [None, "D-engine"]


async def test_h95_nothing_is_repeated_once_the_client_has_bytes() -> None:
    begun = b'data: {"choices": [{"index": 0, "delta": {"content": "Hel"}}]}\n\n'
    late = b'data: {"error": {"message": "busy", "code": 503}}\n\n'
    script = streams(begun, late)
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(script) as first,
        scripted_engine(script) as second,
        routed([prefill], [first, second]) as front,
    ):
        reply = await front.chat("a", stream=True)
        assert reply.chunks[-1]["error"]["code"] == "engine_failed"
        assert len(first.requests) + len(second.requests) == 1


# h97: affinity with a bound


@pytest.mark.parametrize(
    ("busy", "bound", "decode"),
    [
        ({"d1": 16}, 16, D1),
        ({"d1": 17}, 16, D2),
        ({"d1": 17, "d2": 1}, 16, D1),
        ({"d1": 1}, 0, D2),
        ({}, 0, D1),
        ({"d1": 900}, None, D1),
    ],
)
def test_h97_the_holder_is_passed_over_when_it_has_too_much_more_to_do(
    busy: dict[str, int], bound: int | None, decode: Endpoint
) -> None:
    assert pick([P, D1, D2], busy, holder="d1", max_imbalance=bound) == Choice(P, decode)


def test_h97_a_holder_without_another_engine_is_kept() -> None:
    assert pick([P, D1], {"d1": 99}, holder="d1", max_imbalance=1) == Choice(P, D1)
    gone = replace(D2, ready=False)
    assert pick([P, D1, gone], {"d1": 99}, holder="d1", max_imbalance=1) == Choice(P, D1)
    assert pick([P, D1, D2], {"d1": 99}, holder="d1", avoid={"d2"}, max_imbalance=1) == Choice(
        P, D1
    )


def test_h97_of_engines_that_cannot_be_paired_none_takes_the_holders_place() -> None:
    far = replace(D2, zone="b")
    near = replace(P, zone="a")
    assert pick([near, D1, far], {"d1": 99}, holder="d1", max_imbalance=1) == Choice(near, D1)


@given(
    st.lists(st.integers(0, 40), min_size=2, max_size=5),
    st.integers(0, 40),
    st.integers(0, 4),
)
def test_h97_affinity_never_makes_an_engine_busier_than_the_bound_allows(
    loads: list[int], bound: int, at: int
) -> None:
    engines = [replace(D1, name=f"d{number}") for number in range(len(loads))]
    busy = {engine.name: load for engine, load in zip(engines, loads, strict=True)}
    holder = f"d{at % len(loads)}"
    choice = pick([P, *engines], busy, holder=holder, max_imbalance=bound)
    assert choice is not None
    others = [load for name, load in busy.items() if name != holder]
    if choice.decode.name == holder:
        assert busy[holder] - min(others) <= bound or busy[holder] <= min(others)
    else:
        assert busy[choice.decode.name] == min(others)


async def test_h97_a_hot_conversation_is_decoded_elsewhere_and_still_read_from_its_holder() -> None:
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(decoding()) as first,
        scripted_engine(decoding(remote_engine_id="D-2")) as second,
        routed([prefill], [first, second], max_imbalance=2) as front,
    ):
        dialogue = await waiting_dialogue(front)
        endpoints = front.router.parts.endpoints
        holder, other = (first, second) if first.requests else (second, first)
        hot = next(item for item in endpoints if item.url == holder.url)
        with endpoints.reserved(hot), endpoints.reserved(hot), endpoints.reserved(hot):
            assert (await dialogue.say("two")).status == 200
        assert front.hits == 1
        assert engine_ids(prefill)[1] in ("D-engine", "D-2")
        assert (len(holder.requests), len(other.requests)) == (1, 1)
