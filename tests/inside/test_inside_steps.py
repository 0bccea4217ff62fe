"""Steps that overlap, guessed tokens, windows: what is leased is what has KV."""

import pytest

from toypair.engine import Shape
from toypair.model import answer, kv_of_all
from toypair.pair import FIRST, Pair, a_pair
from toypair.transport import FABRIC

PROMPT = list(range(10, 31))
MORE = [3, 1, 4, 1, 5]
ASYNC = Shape(is_async=True)
DRAFTS = Shape(draft_tokens=3)


def lease_is_whole(pair: Pair, held: list[int]) -> None:
    """D's one lease is on all of these tokens but the last, and their blocks hold them."""
    (lease,) = pair.d.leases.values()
    assert lease.tokens == len(held) - 1
    assert lease.blocks == -(-lease.tokens // 4)
    assert pair.d.memory.holds(list(lease.block_ids[0]), kv_of_all(held[: lease.tokens]))


@pytest.mark.parametrize("shape", [Shape(), ASYNC, DRAFTS], ids=["plain", "async", "drafts"])
@pytest.mark.parametrize("tokens", range(1, 10))
def test_a_lease_is_on_every_token_but_the_last(shape: Shape, tokens: int) -> None:
    with a_pair(shape, shape) as pair:
        outcome = pair.turn(PROMPT, tokens=tokens)
        assert outcome.tokens == answer(PROMPT, tokens)
        lease_is_whole(pair, PROMPT + outcome.tokens)


@pytest.mark.parametrize("shape", [Shape(), ASYNC, DRAFTS], ids=["plain", "async", "drafts"])
@pytest.mark.parametrize("number", range(6))
def test_a_lease_after_a_stop_token_ends_before_it(shape: Shape, number: int) -> None:
    with a_pair(shape, shape) as pair:
        stop = answer(PROMPT, 6)[number]
        outcome = pair.turn(PROMPT, tokens=40, stop=[stop])
        assert outcome.reason == "stop"
        assert outcome.tokens == answer(PROMPT, 6)[: number + 1]
        lease_is_whole(pair, PROMPT + outcome.tokens)
        held = PROMPT + outcome.tokens
        pair.settle()
        pair.p.scheduler.reset_prefix_cache()
        again = pair.turn(held + MORE, outcome.params, tokens=3)
        assert again.tokens == answer(held + MORE, 3)


@pytest.mark.parametrize("shape", [Shape(), ASYNC, DRAFTS], ids=["plain", "async", "drafts"])
@pytest.mark.parametrize("number", range(6))
def test_a_p_leg_that_says_more_than_a_token_is_leased_too(shape: Shape, number: int) -> None:
    """A router asks for one; what a client asks of P itself must not end the engine."""
    with a_pair(shape) as pair:
        stop = answer(PROMPT, 6)[number]
        outcome = pair.prefill(PROMPT, FIRST, tokens=40, stop=[stop])
        assert outcome.reason == "stop"
        (lease,) = pair.p.leases.values()
        said = [*PROMPT, *outcome.tokens]
        assert lease.tokens == len(said) - 1
        assert pair.p.memory.holds(list(lease.block_ids[0]), kv_of_all(said[: lease.tokens]))
        assert pair.decode(said + MORE, outcome.params).tokens == answer(said + MORE, 4)
        assert len(FABRIC.done) == 1


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_step_under_way_does_not_spoil_what_is_read_after_an_abort(role: str) -> None:
    """The blocks of the aborted request are the first to be given out again (vLLM 0.32)."""
    with a_pair(ASYNC, ASYNC) as pair:
        engine = pair.p if role == "prefill" else pair.d
        if role == "prefill":
            held, params = pair.conversation(PROMPT, tokens=6)
            prompt = held + MORE
        else:
            prompt = PROMPT
            reply = pair.prefill(PROMPT).params
            assert reply is not None
            params = reply
        other = engine.add([40] * 15, FIRST if role == "prefill" else None, tokens=9)
        engine.step()
        assert engine.core.batch_queue  # it is being computed
        blocks = set(engine.scheduler.kv_cache_manager.get_block_ids(other)[0])
        engine.abort(other)
        name = engine.add(prompt, params, tokens=1 if role == "prefill" else 4)
        engine.step()
        assert engine.is_parked(name)
        assert FABRIC.waiting() == []  # it is read, and the step has not come back
        assert not blocks & set(engine.scheduler.kv_cache_manager.get_block_ids(name)[0])
        engine.run(name)
        assert engine.outcomes[name].tokens == answer(prompt, 1 if role == "prefill" else 4)


def test_vllm_lets_frees_wait_on_both_roles_and_gives_p_its_own_role_back() -> None:
    with a_pair(ASYNC, ASYNC) as pair:
        assert pair.p.scheduler.defer_block_free
        assert pair.d.scheduler.defer_block_free
        assert pair.p.config.kv_transfer_config.kv_role == "kv_producer"
        assert pair.d.config.kv_transfer_config.kv_role == "kv_consumer"
    with a_pair() as pair:
        assert not pair.p.scheduler.defer_block_free


@pytest.mark.parametrize("length", range(18, 26))
def test_a_window_is_read_whole_or_not_at_all(length: int) -> None:
    shape = Shape(window=8)
    with a_pair(shape, shape) as pair:
        prompt = list(range(length))
        held, handle = pair.conversation(prompt, tokens=6)
        (lease,) = pair.d.leases.values()
        assert not lease.divisible
        assert [len(group) for group in lease.block_ids] == [-(-lease.tokens // 4), 3]
        pair.settle()
        pair.p.scheduler.reset_prefix_cache()
        before = len(FABRIC.done)
        assert pair.turn(held + MORE, handle).tokens == answer(held + MORE, 4)
        assert len(FABRIC.done) == before + 2


@pytest.mark.parametrize("kept", [8, 16, 20])
def test_a_part_of_a_window_is_computed(kept: int) -> None:
    shape = Shape(window=8)
    with a_pair(shape, shape) as pair:
        held, handle = pair.conversation(list(range(24)), tokens=6)
        pair.settle()
        pair.p.scheduler.reset_prefix_cache()
        prompt = held[:kept] + MORE
        assert pair.turn(prompt, handle).tokens == answer(prompt, 4)
        assert len(FABRIC.done) == 2  # D's two reads of P
        assert pair.d.book.counters.ended["released"] == 1


@pytest.mark.parametrize("draft_tokens", [0, 3])
@pytest.mark.parametrize("number", range(8))
def test_a_window_after_a_stop_is_read_or_has_no_lease(number: int, draft_tokens: int) -> None:
    shape = Shape(window=8, draft_tokens=draft_tokens)
    with a_pair(shape, shape) as pair:
        stop = answer(PROMPT, 8)[number]
        outcome = pair.turn(PROMPT, tokens=40, stop=[stop])
        assert outcome.tokens == answer(PROMPT, 8)[: number + 1]
        held = PROMPT + outcome.tokens
        again = pair.turn(held + MORE, outcome.params, tokens=3)
        assert again.tokens == answer(held + MORE, 3)


@pytest.mark.parametrize("number", range(8))
def test_a_window_after_a_stop_with_a_step_under_way_is_leased(number: int) -> None:
    shape = Shape(window=8, is_async=True)
    with a_pair(shape, shape) as pair:
        stop = answer(PROMPT, 8)[number]
        outcome = pair.turn(PROMPT, tokens=40, stop=[stop])
        held = PROMPT + outcome.tokens
        (lease,) = pair.d.leases.values()
        assert lease.tokens == len(held) - 1
        pair.settle()
        pair.p.scheduler.reset_prefix_cache()
        again = pair.turn(held + MORE, outcome.params, tokens=3)
        assert again.tokens == answer(held + MORE, 3)
        assert pair.d.book.counters.ended["read"] == 1


def test_a_failed_read_of_windows_is_computed() -> None:
    shape = Shape(window=8)
    with a_pair(shape, shape) as pair:
        offer = pair.prefill(PROMPT).params
        FABRIC.hold = lambda read: True
        name = pair.d.add(PROMPT, offer, tokens=4)
        for _ in range(3):
            pair.d.step()
        FABRIC.fail(FABRIC.waiting()[0])
        pair.d.run(name)
        assert pair.d.outcomes[name].tokens == answer(PROMPT, 4)


def test_several_chunks_of_a_long_prompt_are_leased_and_read() -> None:
    shape = Shape(batch_tokens=16)
    with a_pair(shape, shape) as pair:
        prompt = [token % 50 for token in range(70)]
        held, handle = pair.conversation(prompt, tokens=6)
        pair.settle()
        pair.p.scheduler.reset_prefix_cache()
        assert pair.turn(held + MORE, handle).tokens == answer(held + MORE, 4)
        assert [len(read.pieces) for read in FABRIC.done] == [18, 19, 3]
