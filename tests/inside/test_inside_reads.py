"""Reads that fail, are late, hang, are given up or are asked for again."""

import pytest

from toypair.clock import CLOCK
from toypair.engine import Shape
from toypair.model import answer
from toypair.pair import a_pair
from toypair.scenes import MORE, PROMPT, cold, ended, ends_rightly, parked, refused
from toypair.transport import FABRIC


@pytest.mark.parametrize("is_async", [False, True])
def test_a_failed_read_is_computed_by_a_cold_p(is_async: bool) -> None:
    with a_pair(Shape(is_async=is_async)) as pair:
        held, handle = cold(pair)
        name = parked(pair, held + MORE, handle)
        FABRIC.fail(FABRIC.waiting()[0])
        ends_rightly(pair.p, name, held + MORE)
        assert refused(pair.p) == {"failed": 1}
        assert ended(pair.d) == {"released": 1}


@pytest.mark.parametrize("is_async", [False, True])
def test_a_failed_read_is_computed_by_a_cold_d(is_async: bool) -> None:
    with a_pair(None, Shape(is_async=is_async)) as pair:
        offer = pair.prefill(PROMPT).params
        name = parked(pair, PROMPT, offer, role="d")
        FABRIC.fail(FABRIC.waiting()[0])
        ends_rightly(pair.d, name, PROMPT, 4)
        assert refused(pair.d) == {"failed": 1}
        assert ended(pair.p) == {"released": 1}
        pair.settle()
        assert pair.p.scheduler.requests == {}


def test_a_declined_read_is_computed_by_a_cold_p() -> None:
    with a_pair() as pair:
        held, handle = cold(pair)
        pair.d.book.release(handle["disaggpair"]["lease"])
        outcome = pair.prefill(held + MORE, handle)
        assert outcome.tokens == answer(held + MORE, 1)
        assert len(FABRIC.done) == 1
        assert refused(pair.p) == {"unknown": 1}


def test_a_read_that_is_asked_for_again_reads_nothing() -> None:
    """vLLM asks again after a failed read and after a preemption, and queues one read only."""
    with a_pair() as pair:
        held, handle = cold(pair)
        name = parked(pair, held + MORE, handle)
        request = pair.p.scheduler.requests[name]
        assert pair.p.half.get_num_new_matched_tokens(request, 0) == (0, False)
        FABRIC.let_through(FABRIC.waiting()[0])
        ends_rightly(pair.p, name, held + MORE)


def test_a_preempted_request_is_computed_after_its_read() -> None:
    with a_pair(Shape(batch_tokens=16, max_model_len=128)) as pair:
        held, handle = cold(pair)
        prompt = (held + list(range(40)))[:70]
        name = pair.p.add(prompt, handle)
        while pair.p.scheduler.running == []:
            pair.p.step()
        assert pair.p.scheduler.requests[name].num_computed_tokens < len(prompt)
        pair.p.scheduler.reset_prefix_cache(reset_running_requests=True)
        ends_rightly(pair.p, name, prompt)
        assert len(FABRIC.done) == 2


def test_a_read_that_ends_after_its_time_counts_as_failed() -> None:
    with a_pair() as pair:
        held, handle = cold(pair)
        name = parked(pair, held + MORE, handle)
        (lease,) = pair.d.leases.values()
        # The time is up by P's count, and D has given the blocks to somebody else since.
        CLOCK.advance(33.0)
        pair.decode([7] * 30, None, tokens=90)
        assert lease.id not in pair.d.leases
        FABRIC.let_through(FABRIC.waiting()[0])
        ends_rightly(pair.p, name, held + MORE)
        assert refused(pair.p)["failed"] == 1


@pytest.mark.parametrize("role", ["p", "d"])
def test_a_read_that_hangs_keeps_its_blocks_until_its_transport_ends_it(role: str) -> None:
    with a_pair() as pair:
        if role == "p":
            held, handle = cold(pair)
            engine, name, prompt = pair.p, parked(pair, held + MORE, handle), held + MORE
        else:
            offer = pair.prefill(PROMPT).params
            engine, name, prompt = pair.d, parked(pair, PROMPT, offer, role="d"), PROMPT
        for _ in range(31):
            CLOCK.advance(10.0)
            pair.p.step()
            pair.d.step()
        assert engine.is_parked(name)
        FABRIC.let_through(FABRIC.waiting()[0])
        ends_rightly(engine, name, prompt, *([] if role == "p" else [4]))
        assert refused(engine)["failed"] == 1


def test_a_request_that_is_aborted_while_it_reads_keeps_its_blocks_until_the_read_ends() -> None:
    with a_pair() as pair:
        held, handle = cold(pair)
        name = parked(pair, held + MORE, handle)
        pair.p.abort(name)
        pair.p.step()
        assert pair.p.pool.get_num_free_blocks() < pair.p.shape.blocks - 1
        (read,) = FABRIC.waiting()
        FABRIC.let_through(read)
        pair.settle()
        assert pair.p.pool.get_num_free_blocks() == pair.p.shape.blocks - 1
        assert ended(pair.d) == {"read": 1}


def test_a_request_that_is_aborted_before_it_reads_gives_the_lease_back() -> None:
    with a_pair() as pair:
        held, handle = cold(pair)
        pair.p.reader.holds_answers = True
        name = pair.p.add(held + MORE, handle)
        pair.p.step()
        pair.p.abort(name)
        pair.p.reader.deliver()
        assert ended(pair.d) == {}  # it was never taken
        assert [lease.state for lease in pair.d.leases.values()] == ["granted"]


def test_an_answer_that_comes_after_the_abort_gives_the_lease_back() -> None:
    with a_pair() as pair:
        held, handle = cold(pair)
        name = pair.p.add(held + MORE, handle)
        assert [lease.state for lease in pair.d.leases.values()] == ["reading"]
        pair.p.abort(name)
        assert ended(pair.d) == {"released": 1}


def test_a_silent_owner_costs_a_wait_and_no_more() -> None:
    with a_pair() as pair:
        held, handle = cold(pair)
        pair.p.reader.holds_answers = True
        name = pair.p.add(held + MORE, handle)
        for _ in range(5):
            pair.p.step()
        assert pair.p.outcomes[name].reason is None
        CLOCK.advance(3.1)
        ends_rightly(pair.p, name, held + MORE)
        assert refused(pair.p) == {"timeout": 1}
