"""Handles and offers that fit the request, and those that do not."""

import torch

from toypair.model import answer
from toypair.pair import a_pair
from toypair.scenes import MORE, PROMPT, cold, ended, ends_rightly, parked, refused
from toypair.transport import FABRIC


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
