"""Reads that fail, come late, hang or are asked for again, and the leases that they are made by."""

from typing import Any

import pytest
import torch

from toypair.clock import CLOCK
from toypair.engine import Params, Shape, ToyEngine
from toypair.model import answer
from toypair.pair import FIRST, Pair, a_pair
from toypair.transport import FABRIC

PROMPT = list(range(10, 31))
MORE = [3, 1, 4, 1, 5]


def cold(pair: Pair, tokens: int = 12) -> tuple[list[int], Params]:
    """A conversation that D holds, and P does not any more."""
    held, handle = pair.conversation(PROMPT, tokens=tokens)
    pair.settle()
    assert pair.p.scheduler.reset_prefix_cache()
    return held, handle


def parked(pair: Pair, prompt: list[int], params: Params | None, *, role: str = "p") -> str:
    """A leg whose read is under way."""
    engine = getattr(pair, role)
    FABRIC.hold = lambda read: True
    name = engine.add(prompt, params, tokens=1 if role == "p" else 4)
    for _ in range(4):
        engine.step()
    FABRIC.hold = lambda read: False
    assert engine.is_parked(name)
    assert len(FABRIC.waiting()) == 1
    return name  # type: ignore[no-any-return]


def ends_rightly(engine: ToyEngine, name: str, prompt: list[int], tokens: int = 1) -> None:
    engine.run(name)
    assert engine.outcomes[name].tokens == answer(prompt, tokens)


def ended(engine: ToyEngine) -> dict[str, int]:
    """Leases of an engine that have ended, by reason."""
    return {reason: count for reason, count in engine.book.counters.ended.items() if count}


def refused(engine: ToyEngine) -> dict[str, int]:
    prefix = "refused_reads|"
    return {
        name.removeprefix(prefix): int(count)
        for name, count in engine.counted.items()
        if name.startswith(prefix)
    }


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


def test_a_d_leg_that_the_api_refused_lets_p_free_its_blocks() -> None:
    with a_pair() as pair:
        offer = pair.prefill(PROMPT).params
        pair.d.add([0], offer, is_refused=True)
        pair.settle()
        assert FABRIC.done == []
        assert ended(pair.p) == {"released": 1}
        assert pair.p.scheduler.requests == {}


def test_a_prompt_of_embeddings_is_neither_leased_nor_read() -> None:
    """Whether it is one is all that matters here; the toy model has its tokens all the same."""
    with a_pair() as pair:
        held, handle = cold(pair)
        pair.p.reader.holds_answers = True
        name = pair.p.add(held + MORE, handle)
        pair.p.scheduler.requests[name].prompt_embeds = torch.zeros((60, 2))
        pair.p.reader.deliver()
        ends_rightly(pair.p, name, held + MORE)
        assert refused(pair.p) == {"tokens": 1}
        offer = pair.p.outcomes[name].params
        assert offer is not None
        assert "disaggpair" not in offer
        name = pair.d.add(held + MORE, offer, tokens=4)
        pair.d.scheduler.requests[name].prompt_embeds = torch.zeros((60, 2))
        ends_rightly(pair.d, name, held + MORE, 4)
        assert refused(pair.d) == {"no_lease": 1}
        assert pair.d.outcomes[name].params is None
        assert pair.d.leases == {}


def test_siblings_of_one_offer_are_computed_but_for_the_first() -> None:
    with a_pair() as pair:
        offer = pair.prefill(PROMPT).params
        names = [pair.d.add(PROMPT, offer, tokens=6) for _ in range(3)]
        pair.d.run(*names)
        assert [pair.d.outcomes[name].tokens for name in names] == [answer(PROMPT, 6)] * 3
        assert len(FABRIC.done) == 1
        assert sum(refused(pair.d).values()) == 2
        assert len(pair.d.leases) == 3


def test_an_offer_for_another_prompt_is_not_read() -> None:
    with a_pair() as pair:
        offer = pair.prefill(PROMPT).params
        other = [49 - token for token in PROMPT]
        assert pair.decode(other, offer).tokens == answer(other, 4)
        assert FABRIC.done == []
        pair.settle()
        assert pair.p.scheduler.requests == {}


def test_an_offer_for_the_beginning_of_a_prompt_is_read_for_it() -> None:
    with a_pair() as pair:
        offer = pair.prefill(PROMPT).params
        longer = [*PROMPT, 1, 2, 3]
        assert pair.decode(longer, offer).tokens == answer(longer, 4)
        assert [len(read.pieces) for read in FABRIC.done] == [6]


def test_a_handle_with_another_salt_is_not_read() -> None:
    with a_pair() as pair:
        held, handle = cold(pair)
        name = pair.p.add(held + MORE, handle, salt="another")
        pair.p.run(name)
        assert pair.p.outcomes[name].tokens == answer(held + MORE, 1, "another")
        assert len(FABRIC.done) == 1
        assert refused(pair.p) == {"tokens": 1}


def test_a_conversation_with_a_salt_is_read_under_it() -> None:
    with a_pair() as pair:
        outcome = pair.turn(PROMPT, tokens=12, salt="mine")
        held = PROMPT + outcome.tokens
        pair.settle()
        assert pair.p.scheduler.reset_prefix_cache()
        assert pair.turn(held + MORE, outcome.params, salt="mine").tokens == answer(
            held + MORE, 4, "mine"
        )
        assert len(FABRIC.done) == 3


def test_prompt_logprobs_compute_the_prompt_and_give_the_lease_back() -> None:
    with a_pair() as pair:
        held, handle = cold(pair)
        name = pair.p.add(held + MORE, handle, prompt_logprobs=1)
        assert pair.p.scheduler.requests[name].skip_reading_prefix_cache
        ends_rightly(pair.p, name, held + MORE)
        assert len(FABRIC.done) == 1
        assert ended(pair.d) == {"released": 1}


def test_a_d_that_has_restarted_is_not_read() -> None:
    with a_pair() as pair:
        held, handle = cold(pair)
        pair.restart("d")
        outcome = pair.prefill(held + MORE, handle)
        assert outcome.tokens == answer(held + MORE, 1)
        assert refused(pair.p) == {"unreachable": 1}


def test_a_d_that_dies_while_it_is_read_costs_a_recompute() -> None:
    with a_pair() as pair:
        held, handle = cold(pair)
        name = parked(pair, held + MORE, handle)
        pair.restart("d")
        FABRIC.let_through(FABRIC.waiting()[0])
        ends_rightly(pair.p, name, held + MORE)


def test_notifications_of_requests_that_the_scheduler_does_not_know_do_no_harm() -> None:
    with a_pair() as pair:
        held, handle = cold(pair)
        name = pair.p.add(held + MORE, handle)
        pair.p.run(name)
        assert ended(pair.d) == {"read": 1}  # P said so over HTTP
        agent = pair.d.worker.nixl_wrapper.name
        for notification in (b"decode-1:1", b"decode-99:1", b"HB:decode-1,decode-99"):
            FABRIC.tell("p", agent, notification)
        assert pair.decode(PROMPT, None).tokens == answer(PROMPT, 4)


def test_a_read_whose_end_is_not_told_over_http_ends_by_its_notification() -> None:
    with a_pair() as pair:
        held, handle = cold(pair)
        pair.p.reader.loses = {"finish"}
        pair.prefill(held + MORE, handle)
        assert ended(pair.d) == {}
        pair.decode([1], None)  # D sees notifications at a step
        assert ended(pair.d) == {"read": 1}


def test_a_read_whose_end_is_not_told_at_all_ends_by_its_time() -> None:
    with a_pair() as pair:
        held, handle = cold(pair)
        pair.p.reader.loses = {"finish"}
        FABRIC.loses_notifications = True
        pair.prefill(held + MORE, handle)
        pair.decode([1], None)
        assert ended(pair.d) == {}
        CLOCK.advance(33.0)
        pair.decode([1], None)
        assert ended(pair.d) == {"overdue": 1}


def test_heartbeats_keep_ps_blocks_while_a_d_leg_waits_for_its_own() -> None:
    with a_pair(None, Shape(seqs=1)) as pair:
        offer = pair.prefill(PROMPT).params
        first = pair.d.add([1], None, tokens=100)
        name = pair.d.add(PROMPT, offer, tokens=4)
        for _ in range(80):
            CLOCK.advance(1.0)
            pair.d.step()
            pair.p.step()
        pair.d.run(first)
        ends_rightly(pair.d, name, PROMPT, 4)
        assert len(FABRIC.done) == 1
        assert ended(pair.p) == {"read": 1}


def test_a_d_that_stood_still_does_not_begin_a_read_of_what_p_has_freed() -> None:
    with a_pair(None, Shape(seqs=1)) as pair:
        offer = pair.prefill(PROMPT).params
        first = pair.d.add([1], None, tokens=20)
        name = pair.d.add(PROMPT, offer, tokens=4)
        for _ in range(5):
            pair.d.step()
            pair.p.step()
        CLOCK.advance(60.0)
        pair.p.run(pair.p.add([3] * 60, FIRST))  # takes blocks
        pair.d.run(first)
        ends_rightly(pair.d, name, PROMPT, 4)
        assert FABRIC.done == []


def test_what_a_handshake_that_fails_leaves_is_nothing() -> None:
    with a_pair() as pair:
        held, handle = cold(pair)
        worker: Any = pair.p.worker
        worker._cleanup_remote_engine(pair.d.half.engine_id, log_eviction=False)
        worker.compat_hash += "+other"
        name = pair.p.add(held + MORE, handle)
        for _ in range(3):
            pair.p.step()
        while worker._handshake_futures:  # a thread's, which answers within its own time
            next(iter(worker._handshake_futures.values())).exception(timeout=30)
        ends_rightly(pair.p, name, held + MORE)
        assert ended(pair.d) == {"released": 1}
        assert worker._read_deadlines == {}


def test_a_d_that_stood_still_while_it_read_does_not_use_what_p_has_freed() -> None:
    with a_pair(Shape(blocks=20)) as pair:
        offer = pair.prefill(PROMPT).params
        name = parked(pair, PROMPT, offer, role="d")
        for _ in range(45):
            CLOCK.advance(1.0)
            pair.p.step()
        assert pair.p.scheduler.requests == {}
        for first in range(4):  # P's blocks are others' now
            pair.p.run(pair.p.add([first] * 60, None))
        FABRIC.let_through(FABRIC.waiting()[0])
        ends_rightly(pair.d, name, PROMPT, 4)
        assert refused(pair.d) == {"failed": 1}
