"""How a simulated D keeps blocks for a next turn, and whom it gives them to."""

import pytest

from disaggpair_bed.simengine.decisions import Ending
from disaggpair_bed.simengine.localpair import LocalPair, Params, with_ours, words
from disaggpair_bed.simengine.twolegs import TURN_1


def test_a_lease_lasts_its_time_and_needs_no_step_for_it() -> None:
    pair = LocalPair(ttl_s=7200)
    pair.first_turn()
    assert pair.d.next_deadline() is None
    pair.net.now += 7199
    pair.d.connector.settle()
    assert pair.d.connector.kept == 1
    pair.net.now += 1
    pair.d.connector.settle()
    assert pair.d.connector.kept == 0
    assert pair.d.oracle.count("expired") == 1
    assert pair.d.pool.usage == 0


def test_blocks_of_a_lease_that_ran_out_are_there_for_whoever_asks() -> None:
    pair = LocalPair(decode_blocks=60, ttl_s=100)
    pair.first_turn()
    pair.net.now += 100
    assert pair.net.ask(pair.d, words(900, 7000)).ending is Ending.LENGTH
    assert pair.d.oracle.count("expired") == 1
    assert pair.d.oracle.count("reclaimed") == 0


def test_a_full_d_gives_the_oldest_lease_up_to_whoever_needs_blocks() -> None:
    pair = LocalPair(decode_blocks=120)
    turns = [pair.first_turn(start=10_000 * number) for number in (1, 2, 3)]
    assert pair.d.connector.kept == 3
    assert pair.net.ask(pair.d, words(100, 7000)).ending is Ending.LENGTH
    assert pair.d.stats.preemptions == 0
    assert (pair.d.oracle.count("reclaimed"), pair.d.oracle.count("live")) == (1, 2)
    for following, handle in turns:
        assert pair.turn(following, handle).tokens == pair.right(following)
    assert pair.p.stats.refused_reads["unknown"] >= 1
    assert pair.is_clean()


def test_an_answer_that_grows_into_a_full_d_takes_a_lease_and_goes_on() -> None:
    pair = LocalPair(decode_blocks=50)
    pair.first_turn()
    answer = pair.net.ask(pair.d, words(150, 7000), max_tokens=100)
    assert len(answer.tokens) == 100
    assert pair.d.stats.preemptions == 0
    assert pair.d.oracle.count("reclaimed") == 1


def test_a_request_that_no_lease_would_help_takes_none() -> None:
    pair = LocalPair(decode_blocks=60)
    following, handle = pair.first_turn()
    request = pair.net.submit(pair.d, words(2000, 7000))
    pair.net.run()
    assert pair.net.results[request].tokens == []
    assert pair.d.connector.kept == 1
    assert pair.d.must_poll
    pair.d.abort(request, pair.net.now)
    assert pair.turn(following, handle).tokens == pair.right(following)


def test_a_lease_that_is_being_read_is_not_given_up() -> None:
    pair = LocalPair(decode_blocks=60)
    following, handle = pair.first_turn()
    pair.net.hold_reads = True
    reading = pair.net.submit(pair.p, following, handle, max_tokens=1)
    pair.net.run()
    plain = pair.net.submit(pair.d, words(900, 7000))
    pair.net.run()
    assert pair.net.results[plain].tokens == []
    pair.net.release_reads()
    assert pair.net.results[reading].tokens == pair.right(following)[:1]
    assert pair.net.results[plain].ending is Ending.LENGTH
    assert pair.p.oracle.violations == pair.d.oracle.violations == []


def test_blocks_that_were_given_up_stay_in_the_prefix_cache_of_d() -> None:
    pair = LocalPair(decode_blocks=50)
    following, _ = pair.first_turn()
    pair.net.ask(pair.d, words(200, 7000))
    assert pair.d.oracle.count("reclaimed") == 1
    pair.net.ask(pair.d, following)
    assert pair.d.stats.local_cache_hit > 0


@pytest.mark.parametrize("params", [{"conversation": "c"}, {"disaggpair": {"conversation": "c"}}])
def test_parameters_of_any_kind_give_a_lease_that_ends(params: Params) -> None:
    pair = LocalPair()
    answer = pair.net.ask(pair.d, words(100), params)
    assert answer.params is not None
    expected = params.get("disaggpair", {}).get("conversation")
    assert answer.params["disaggpair"].get("conversation") == expected
    pair.net.pass_time(3600)
    pair.d.connector.settle()
    assert pair.d.pool.usage == 0


@pytest.mark.parametrize("params", [None, {}])
def test_no_parameters_give_no_lease(params: Params | None) -> None:
    pair = LocalPair()
    assert pair.net.ask(pair.d, words(100), params).params is None
    assert pair.d.pool.usage == 0


def test_the_conversation_reaches_the_lease_by_way_of_p() -> None:
    pair = LocalPair()
    prompt = words(100)
    first = pair.net.ask(
        pair.p, prompt, {**TURN_1, "disaggpair": {"conversation": "c7"}}, max_tokens=1
    )
    answer = pair.net.ask(pair.d, prompt, first.params)
    assert answer.params is not None
    assert answer.params["disaggpair"]["conversation"] == "c7"


def test_a_claimed_lease_is_read_with_the_new_token_only() -> None:
    pair = LocalPair()
    following, handle = pair.first_turn()
    claimed = pair.book.claim(handle["disaggpair"]["lease"], "read")
    assert pair.turn(following, handle).tokens == pair.right(following)
    assert pair.p.stats.refused_reads == {"token": 1}
    pair.turn(following, with_ours(handle, token=claimed.token))
    assert pair.p.stats.external_kv_transfer == 619
    assert pair.is_clean()


def test_a_direct_turn_keeps_its_history_until_it_has_its_blocks() -> None:
    pair = LocalPair(decode_blocks=60)
    following, handle = pair.first_turn()
    claimed = pair.book.claim(handle["disaggpair"]["lease"], "direct")
    blocker = pair.net.submit(pair.d, words(900, 7000), max_tokens=1)
    pair.net.run()
    assert pair.net.results[blocker].ending is None
    pair.d.abort(blocker, pair.net.now)
    direct = {"disaggpair": {"lease": claimed.id, "token": claimed.token}}
    answer = pair.net.ask(pair.d, following, direct)
    assert answer.tokens == pair.right(following)
    assert pair.d.stats.local_cache_hit == 608
    assert pair.d.oracle.count("consumed") == 1
    assert pair.is_clean()


def test_a_direct_turn_with_a_wrong_token_is_computed_all_the_same() -> None:
    pair = LocalPair()
    following, handle = pair.first_turn()
    direct = {"disaggpair": {"lease": handle["disaggpair"]["lease"], "token": "guess"}}
    assert pair.net.ask(pair.d, following, direct).tokens == pair.right(following)
    assert pair.d.stats.refused_reads == {"token": 1}


def test_a_reset_of_the_prefix_cache_ends_the_leases() -> None:
    pair = LocalPair()
    following, handle = pair.first_turn()
    pair.d.reset_prefix_cache()
    assert pair.d.pool.usage == 0
    assert pair.turn(following, handle).tokens == pair.right(following)
    assert pair.p.stats.refused_reads == {"unknown": 1}


def test_an_aborted_request_leaves_no_lease() -> None:
    pair = LocalPair(decode_blocks=20)
    request = pair.net.submit(pair.d, words(100), {"disaggpair": {}}, max_tokens=100)
    pair.d.step(pair.net.now)
    pair.d.abort(request, pair.net.now)
    assert pair.d.pool.usage == 0
    assert pair.d.connector.kept == 0


def test_a_read_without_a_lease_is_seen() -> None:
    pair = LocalPair()
    _, handle = pair.first_turn()
    pair.d.connector.serve_read(handle["remote_request_id"], [1, 2])
    assert pair.d.oracle.violations[0].kind == "read_without_lease"
