"""Chats that never return: what they keep in D's memory, and for how long (h12, h13, h28)."""

import asyncio
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from disaggpair_bed.chaos.bench import lease_bench
from disaggpair_bed.routing import Dialogue, eventually, routed
from disaggpair_bed.simengine import running_engine
from disaggpair_router.heldtokens import HeldTokens
from disaggpair_router.kv import Handle
from disaggpair_router.session import Conversations, Entry, Holder

LONG = "some words that make a prompt of more than sixty-four tokens " * 4
ONE = Entry(b"", b"s", None, None, Holder("d", "1"), "m", 1e9)


def entry(number: int, tokens: int, endpoint: str = "d") -> Entry:
    handle = Handle(b"{}", "engine", tokens)
    return replace(ONE, key=b"%d" % number, handle=handle, holder=Holder(endpoint, "1"))


def table(max_tokens: int | None) -> Conversations:
    return Conversations(max_entries=1000, max_bytes=10**9, memory_s=100.0, max_tokens=max_tokens)


def test_h13_the_oldest_handle_of_an_engine_makes_room_for_a_new_one() -> None:
    held = table(100)
    assert held.store(entry(1, 60)) == []
    assert held.store(entry(2, 60, "other")) == []
    assert [one.key for one in held.store(entry(3, 60))] == [b"1"]
    assert held.handles == 2
    assert held.holder(b"1") == Holder("d", "1")


def test_h13_a_turn_that_is_larger_than_the_bound_is_kept_alone() -> None:
    held = table(100)
    assert held.store(entry(1, 50)) == []
    assert [one.key for one in held.store(entry(2, 500))] == [b"1"]
    assert [one.key for one in held.store(entry(3, 1))] == [b"2"]
    assert held.handles == 1


def test_h13_a_conversation_that_goes_on_counts_once() -> None:
    held = table(100)
    given_back = [held.store(entry(1, 90)) for _ in range(3)]
    assert [[one.key for one in some] for some in given_back] == [[], [b"1"], [b"1"]]
    assert held.handles == 1


def test_h13_without_a_bound_nothing_is_given_up() -> None:
    held = table(None)
    assert [held.store(entry(number, 10**6)) for number in range(50)] == [[]] * 50


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9), st.integers(1, 90)), max_size=60)
)
def test_h13_the_tokens_of_an_engine_stay_within_the_bound(
    stored: list[tuple[str, int, int]],
) -> None:
    held = table(100)
    for endpoint, number, tokens in stored:
        held.store(entry(number, tokens, endpoint))
        sums = {"a": 0, "b": 0}
        counts = {"a": 0, "b": 0}
        for one in held:
            if one.handle:
                sums[one.holder.endpoint] += one.handle.tokens
                counts[one.holder.endpoint] += 1
        assert all(sums[name] <= 100 or counts[name] == 1 for name in sums)


def test_h13_an_engine_without_handles_has_no_excess() -> None:
    held = HeldTokens(1)
    assert held.excess("d") is None
    held.add("d", b"1", 5)
    held.add("d", b"2", 5)
    assert held.excess("d") == b"1"
    held.remove("d", b"1")
    held.remove("d", b"2")
    assert held.excess("d") is None


async def test_h12_chats_that_never_return_keep_no_more_than_the_bound() -> None:
    most = 600
    async with (
        running_engine("prefill") as prefill,
        running_engine("decode") as decode,
        routed([prefill], [decode], kv={"max_held_tokens": most, "releases_per_s": 1000}) as front,
    ):
        oracle = decode.engine.oracle
        for batch in range(6):
            await asyncio.gather(*(front.chat(f"{batch} {n} {LONG}") for n in range(10)))
        assert front.hits == 0

        def live() -> int:
            return sum(one.tokens for one in oracle.handles.values() if one.state == "live")

        await eventually(lambda: live() <= most)
        assert oracle.count("live", "decode") >= 1
        assert oracle.count("released", "decode") > 50


async def test_h12_a_chat_that_was_given_up_for_others_says_so() -> None:
    async with (
        running_engine("prefill") as prefill,
        running_engine("decode") as decode,
        routed([prefill], [decode], kv={"max_held_tokens": 150}) as front,
    ):
        first = Dialogue(front, {"conversation_id": "first"})
        await first.say(LONG)
        for number in range(3):
            await front.chat(f"{number} {LONG}")
        assert (await first.say(LONG)).status == 200
        assert front.misses["displaced"] == 1


async def test_h12_h13_with_leases_d_takes_back_the_oldest_when_it_needs_the_blocks() -> None:
    async with (
        lease_bench(flags=("--num-gpu-blocks-override", "120")) as bench,
        bench.router() as front,
    ):
        kept = Dialogue(front, {"conversation_id": "kept"})
        await kept.say(LONG)
        for start in range(12):
            chats = (front.chat(f"{start} {n} {LONG}") for n in range(5))
            assert [reply.status for reply in await asyncio.gather(*chats)] == [200] * 5
        assert bench.decode.engine.oracle.count("reclaimed", "decode") > 0
        assert (await kept.say(LONG)).status == 200
        assert front.hits == 0
        assert bench.decode.engine.core.stats.preemptions == 0
