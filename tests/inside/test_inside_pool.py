"""Leases and the need of blocks, on vLLM's own block pool."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm.sampling_params import SamplingParams
from vllm.v1.request import Request

from toypair.clock import CLOCK
from toypair.model import answer, kv_of_all
from toypair.pair import a_pair
from toypair.scenes import SMALL, three_leases, turn_alone
from toypair.transport import FABRIC


def test_an_engine_with_leases_alone_is_idle() -> None:
    with a_pair(None, SMALL) as pair:
        three_leases(pair)
        pair.settle()
        assert not pair.d.scheduler.has_requests()
        assert pair.d.pool.get_num_free_blocks() == 8
        assert not pair.d.step()


def test_a_need_takes_the_oldest_lease_and_no_more_than_it_needs() -> None:
    with a_pair(None, SMALL) as pair:
        _, second, third = three_leases(pair)
        pair.d.run(pair.d.add([9] * 40, None))
        assert [*pair.d.leases] == [second, third]


def test_a_request_that_grows_takes_leases_before_another_is_preempted() -> None:
    with a_pair(None, SMALL) as pair:
        three_leases(pair)
        names = [pair.d.add([first] * 8, None, tokens=30) for first in (8, 9)]
        pair.d.run(*names)
        assert [pair.d.outcomes[name].tokens for name in names] == [
            answer([first] * 8, 30) for first in (8, 9)
        ]
        assert pair.d.book.counters.ended["reclaimed"] >= 1
        assert all(request.num_preemptions == 0 for request in pair.d.scheduler.requests.values())


def test_a_claimed_lease_is_not_taken() -> None:
    with a_pair(None, SMALL) as pair:
        first, _, third = three_leases(pair)
        pair.d.book.claim(first, "read")
        pair.d.run(pair.d.add([9] * 40, None))
        assert [*pair.d.leases] == [first, third]


def test_a_lease_that_is_read_is_not_taken() -> None:
    with a_pair(None, SMALL) as pair:
        held, handle = turn_alone(pair.d, [4] * 17)
        turn_alone(pair.d, [5] * 17)
        FABRIC.hold = lambda read: True
        pair.p.add(held + [5] * 5, handle)
        for _ in range(3):
            pair.p.step()
        lease = pair.d.leases[handle["disaggpair"]["lease"]]
        assert lease.state == "reading"
        pair.d.run(pair.d.add([9] * 70, None))
        assert [*pair.d.leases] == [lease.id]
        blocks = list(lease.block_ids[0])
        assert pair.d.memory.holds(blocks, kv_of_all(held[: lease.tokens]))


def test_a_request_that_all_leases_would_not_help_takes_none() -> None:
    with a_pair(None, SMALL) as pair:
        leases = three_leases(pair)
        running = pair.d.add([7] * 28, None, tokens=60)  # 8 blocks, and more as it goes on
        pair.d.step()
        waiting = pair.d.add([9] * 70, None)  # 18 blocks and 15 in leases
        pair.d.step()
        assert [*pair.d.leases] == leases
        pair.d.abort(running)
        pair.d.run(waiting)
        assert pair.d.leases.keys() < set(leases)


def test_a_d_that_stands_still_takes_the_oldest_claimed_lease_too() -> None:
    with a_pair(None, SMALL) as pair:
        _, second, third = three_leases(pair)
        for lease in pair.d.leases:
            pair.d.book.claim(lease, "read")
        name = pair.d.add([9] * 40, None)
        for _ in range(8):
            pair.d.step()
            CLOCK.advance(0.1)
        assert len(pair.d.leases) == 3
        CLOCK.advance(0.3)
        pair.d.run(name)
        assert [*pair.d.leases] == [second, third]
        assert pair.d.outcomes[name].tokens == answer([9] * 40, 1)


def test_direct_turns_that_keep_each_other_from_their_blocks_go_on() -> None:
    with a_pair(None, SMALL) as pair:
        turns = []
        for held, handle in [turn_alone(pair.d, [first] * 24) for first in (1, 2, 3)]:
            lease = handle["disaggpair"]["lease"]
            ours = {"lease": lease, "token": pair.d.book.claim(lease, "direct").token}
            prompt = held + [5] * 20  # 12 blocks, of which the lease has 7; 2 are free
            turns.append((pair.d.add(prompt, {"disaggpair": ours}, tokens=4), prompt))
        for _ in range(30):
            pair.d.step()
            CLOCK.advance(0.1)
        pair.d.run(*(name for name, _ in turns))
        for name, prompt in turns:
            assert pair.d.outcomes[name].tokens == answer(prompt, 4)


def test_a_pair_whose_requests_hold_each_others_blocks_goes_on() -> None:
    with a_pair(SMALL, SMALL) as pair:
        talks = [pair.conversation([first] * 24, tokens=4) for first in (1, 2, 3)]
        pair.settle()
        assert pair.p.scheduler.reset_prefix_cache()
        # P is full of what D is to read, and asks for what D holds.
        others = [[first] * 40 for first in (4, 5)]
        offers = [pair.prefill(prompt).params for prompt in others]
        p_legs = [(pair.p.add(held + [9] * 5, handle), held) for held, handle in talks]
        for _ in range(3):
            pair.p.step()
        assert pair.d.book.counts()["reading"] == 3
        d_legs = [
            (pair.d.add(prompt, offer, tokens=4), prompt)
            for prompt, offer in zip(others, offers, strict=True)
        ]
        began = CLOCK()
        while not all(pair.d.outcomes[name].reason for name, _ in d_legs):
            pair.p.step()
            pair.d.step()
            CLOCK.advance(0.1)
            assert CLOCK() - began < 5.0, (pair.p.status(), pair.d.status())
        for name, prompt in d_legs:
            assert pair.d.outcomes[name].tokens == answer(prompt, 4)
        while not all(pair.p.outcomes[name].reason for name, _ in p_legs):
            pair.p.step()
            CLOCK.advance(1.0)  # nobody reads what they leave
        for name, held in p_legs:
            assert pair.p.outcomes[name].tokens == answer(held + [9] * 5, 1)


def test_what_is_given_up_stays_in_the_prefix_cache() -> None:
    with a_pair(None, SMALL) as pair:
        held, handle = turn_alone(pair.d, [1] * 17)
        pair.d.book.release(handle["disaggpair"]["lease"])
        name = pair.d.add([*held, 5], None, tokens=5)
        pair.d.step()
        request = pair.d.scheduler.requests[name]
        assert request.num_computed_tokens == 22
        assert pair.d.core.model_executor.model._running[name].blocks[0][:5] == [1, 2, 3, 4, 5]
        pair.d.run(name)


def test_a_direct_turn_has_its_history_kept_until_it_has_its_blocks() -> None:
    with a_pair(None, SMALL) as pair:
        held, handle = turn_alone(pair.d, [1] * 17)
        ours = handle["disaggpair"]
        token = pair.d.book.claim(ours["lease"], "direct").token
        long = pair.d.add([9] * 70, None)  # comes first, and takes all that it can have
        params = {"disaggpair": {"lease": ours["lease"], "token": token}}
        name = pair.d.add([*held, 5], params, tokens=4)
        pair.d.run(long, name)
        assert pair.d.outcomes[name].tokens == answer([*held, 5], 4)
        assert pair.d.book.counters.ended["direct"] == 1
        (lease,) = pair.d.leases.values()  # its own
        assert lease.tokens == len(held) + 4


def test_a_lease_and_a_request_can_have_the_same_blocks() -> None:
    with a_pair(None, SMALL) as pair:
        held, _ = turn_alone(pair.d, [1] * 17)
        name = pair.d.add([*held, 5], None, tokens=20)
        pair.d.step()
        other = pair.d.add([9] * 69, None)  # takes the lease, and not what is in use
        pair.d.step()
        assert pair.d.leases == {}
        pair.d.run(name, other)
        assert pair.d.outcomes[name].tokens == answer([*held, 5], 20)


@pytest.mark.parametrize("tokens", [1, 2, 3, 4])
def test_the_last_block_of_a_lease_is_kept_when_it_is_partly_filled(tokens: int) -> None:
    with a_pair(None, SMALL) as pair:
        held, handle = turn_alone(pair.d, [1] * 16, tokens)
        lease = pair.d.leases[handle["disaggpair"]["lease"]]
        assert lease.tokens == len(held) - 1
        assert lease.blocks == -(-lease.tokens // 4)
        pair.d.run(pair.d.add([9] * 60, None))
        assert pair.d.memory.holds(list(lease.block_ids[0]), kv_of_all(held[: lease.tokens]))


lengths = st.integers(1, 60)


@settings(max_examples=80)
@given(
    leased=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 30)), max_size=4),
    running=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 20)), max_size=3),
    wanted=st.tuples(st.integers(0, 3), lengths),
    external=st.integers(0, 40),
    chunk=st.integers(1, 40),
    lookahead=st.integers(0, 5),
    reserved=st.integers(0, 8),
    must_fit=st.booleans(),
)
def test_what_is_refused_as_in_vain_would_not_fit_without_any_lease(
    leased: list[tuple[int, int]],
    running: list[tuple[int, int]],
    wanted: tuple[int, int],
    external: int,
    chunk: int,
    lookahead: int,
    reserved: int,
    must_fit: bool,
) -> None:
    with a_pair(None, SMALL) as pair:
        engine = pair.d
        for first, length in leased:
            turn_alone(engine, [first] * length)
        names = [engine.add([first] * length, None, tokens=60) for first, length in running]
        engine.step()
        manager = engine.scheduler.kv_cache_manager
        request = Request(
            "wanted",
            [wanted[0]] * wanted[1],
            SamplingParams(max_tokens=1),
            None,
            block_hasher=engine.core.request_block_hasher,
        )
        found, local, _ = manager.get_computed_blocks(request)
        external = min(external, wanted[1] - local)
        call: dict[str, Any] = {
            "num_new_tokens": 0 if external else min(chunk, wanted[1] - local),
            "num_new_computed_tokens": local,
            "new_computed_blocks": found,
            "num_lookahead_tokens": lookahead,
            "num_external_computed_tokens": external,
            "delay_cache_blocks": external > 0,
            "full_sequence_must_fit": must_fit,
            "reserved_blocks": reserved,
        }
        blocks = manager.allocate_slots(request, **call)
        if blocks is None:
            while engine.half._give_up_oldest():
                pass
            assert manager.allocate_slots.__wrapped__(request, **call) is None
        else:
            manager.free(request)
        engine.abort(*names)
