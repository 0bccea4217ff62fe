"""What a simulated P reads of D with our connector, and what it computes instead."""

from array import array

import pytest

from disaggpair_bed.simengine import promptdigests, tokens
from disaggpair_bed.simengine.decisions import Ending
from disaggpair_bed.simengine.localpair import LocalPair, words
from disaggpair_bed.simengine.twolegs import TURN_1


def test_p_reads_what_d_has_and_computes_the_rest() -> None:
    pair = LocalPair()
    following, handle = pair.first_turn()
    assert handle["remote_num_tokens"] == 619
    assert pair.turn(following, handle).tokens == pair.right(following)
    assert pair.p.stats.external_kv_transfer == pair.p.stats.verified_tokens == 619
    assert pair.d.oracle.count("consumed") == 1
    assert pair.is_clean()


def test_p_reads_only_what_its_own_cache_lacks() -> None:
    pair = LocalPair(prefix_caching=True)
    following, handle = pair.first_turn()
    pair.p.pool.reset_prefix_cache()
    pair.net.ask(pair.p, following[:320])
    assert pair.turn(following, handle).tokens == pair.right(following)
    assert pair.p.stats.external_kv_transfer == 619 - 320
    assert pair.is_clean()


def test_a_history_that_p_has_in_its_cache_is_released() -> None:
    pair = LocalPair(prefix_caching=True)
    following, handle = pair.first_turn()
    assert pair.turn(following, handle).tokens == pair.right(following)
    assert pair.p.stats.refused_reads == {"short": 1}
    assert pair.d.oracle.count("released") == 1
    assert pair.is_clean()


@pytest.mark.parametrize(
    ("place", "read"), [(3, 0), (255, 0), (256, 256), (400, 256), (512, 512), (610, 512)]
)
def test_of_an_edited_history_the_chunks_before_the_edit_are_read(place: int, read: int) -> None:
    pair = LocalPair(prefix_caching=True)
    following, handle = pair.first_turn()
    pair.p.pool.reset_prefix_cache()
    following[place] += 7
    second = pair.turn(following, handle)
    assert second.tokens == pair.right(following)
    assert pair.p.stats.external_kv_transfer == read
    assert pair.p.stats.refused_reads == ({} if read else {"tokens": 1})
    assert pair.net.ask(pair.p, following).tokens == second.tokens
    assert pair.is_clean()


def test_of_a_longer_lease_the_chunks_that_a_short_prompt_has_are_read() -> None:
    pair = LocalPair()
    _, handle = pair.first_turn()
    shorter = words(300)
    assert pair.turn(shorter, handle).tokens == pair.right(shorter)
    assert pair.p.stats.external_kv_transfer == 256
    assert pair.is_clean()


def test_another_cache_salt_is_another_history() -> None:
    pair = LocalPair()
    following, handle = pair.first_turn()
    pair.net.ask(pair.p, following, handle, max_tokens=1, salt="other")
    assert pair.p.stats.refused_reads == {"tokens": 1}


def test_a_second_use_is_declined_and_computed() -> None:
    pair = LocalPair()
    following, handle = pair.first_turn()
    pair.turn(following, handle)
    assert pair.turn(following, handle).tokens == pair.right(following)
    assert pair.p.stats.refused_reads == {"unknown": 1}
    assert pair.is_clean()


def test_two_requests_with_one_handle_read_it_once() -> None:
    pair = LocalPair()
    following, handle = pair.first_turn()
    requests = [pair.net.submit(pair.p, following, handle, max_tokens=1) for _ in range(2)]
    pair.net.run()
    expected = pair.right(following)[:1]
    assert [pair.net.results[request].tokens for request in requests] == [expected, expected]
    assert pair.p.stats.refused_reads == {"taken": 1}
    assert pair.is_clean()


def test_a_p_leg_that_the_api_refuses_gives_the_lease_back() -> None:
    pair = LocalPair()
    _, handle = pair.first_turn()
    pair.p.refuse(dict(handle))
    assert pair.is_clean()
    assert pair.d.oracle.count("released") == 1


def test_a_restarted_d_declines_its_old_leases() -> None:
    pair = LocalPair()
    following, handle = pair.first_turn()
    pair.new_decode()
    assert pair.turn(following, handle).tokens == pair.right(following)
    assert pair.p.stats.refused_reads == {"unknown": 1}
    assert pair.is_clean()


def test_a_cold_p_computes_when_d_is_gone() -> None:
    pair = LocalPair()
    following, handle = pair.first_turn()
    del pair.net.cores["D"]
    late = pair.net.ask(pair.p, following, handle, max_tokens=1)
    assert late.tokens == pair.right(following)[:1]
    assert pair.p.stats.refused_reads == {"unreachable": 1}


def test_a_cold_p_computes_when_d_goes_during_the_read() -> None:
    pair = LocalPair()
    following, handle = pair.first_turn()
    pair.net.hold_reads = True
    request = pair.net.submit(pair.p, following, handle, max_tokens=1)
    pair.net.run()
    del pair.net.cores["D"]
    pair.net.release_reads()
    assert pair.net.results[request].tokens == pair.right(following)[:1]
    assert pair.p.stats.refused_reads == {"failed": 1}
    assert pair.p.oracle.violations == []


def test_a_read_that_takes_too_long_counts_for_nothing() -> None:
    pair = LocalPair()
    following, handle = pair.first_turn()
    pair.net.hold_reads = True
    request = pair.net.submit(pair.p, following, handle, max_tokens=1)
    pair.net.run()
    pair.net.pass_time(33)
    pair.d.connector.settle()
    assert pair.d.oracle.count("expired") == 1
    assert pair.d.pool.usage == 0
    pair.net.release_reads()
    assert pair.net.results[request].tokens == pair.right(following)[:1]
    assert pair.is_clean()


def test_a_request_waits_for_the_answer_and_others_do_not() -> None:
    pair = LocalPair()
    following, handle = pair.first_turn()
    pair.net.hold_answers = True
    asking = pair.net.submit(pair.p, following, handle, max_tokens=1)
    plain = pair.net.submit(pair.p, words(100, 7000), TURN_1, max_tokens=1)
    pair.net.run()
    assert pair.net.results[plain].ending is Ending.LENGTH
    assert pair.net.results[asking].ending is None
    assert pair.p.must_poll
    pair.net.hold_answers = False
    pair.net.run()
    assert pair.net.results[asking].tokens == pair.right(following)[:1]
    assert not pair.p.must_poll
    assert pair.is_clean()


def test_an_answer_that_comes_too_late_is_not_used() -> None:
    pair = LocalPair()
    following, handle = pair.first_turn()
    pair.net.hold_answers = True
    asking = pair.net.submit(pair.p, following, handle, max_tokens=1)
    pair.net.pass_time(29.5)
    pair.net.hold_answers = False
    pair.net.run()
    assert pair.net.results[asking].tokens == pair.right(following)[:1]
    assert pair.p.stats.refused_reads == {"late": 1}
    assert pair.d.oracle.count("released") == 1
    assert pair.is_clean()


def test_a_client_that_leaves_before_the_read_gives_the_lease_back() -> None:
    pair = LocalPair()
    following, handle = pair.first_turn()
    pair.net.hold_answers = True
    request = pair.net.submit(pair.p, following, handle, max_tokens=1)
    pair.net.run()
    pair.p.abort(request, pair.net.now)
    pair.d.connector.settle()
    assert pair.d.oracle.count("released") == 1
    assert pair.d.pool.usage == 0
    assert pair.is_clean()


def test_no_remote_tokens_release_the_lease_without_a_read() -> None:
    pair = LocalPair()
    _, handle = pair.first_turn()
    pair.net.ask(pair.p, words(1), {**handle, "remote_num_tokens": 0}, max_tokens=1)
    pair.d.connector.settle()
    assert pair.d.oracle.count("released") == 1
    assert pair.d.pool.usage == 0
    assert pair.is_clean()


def test_prompt_logprobs_compute_everything_and_give_the_lease_back() -> None:
    pair = LocalPair()
    following, handle = pair.first_turn()
    request = pair.net.submit(pair.p, following, handle, max_tokens=1, reads_prefix_cache=False)
    pair.net.run()
    assert pair.net.results[request].tokens == pair.right(following)[:1]
    assert pair.p.stats.external_kv_transfer == 0
    assert pair.is_clean()


def test_tokens_of_every_kind_stay_apart_in_32_bits() -> None:
    kinds = [
        *tokens.encode("abcdefghijkl"),
        *tokens.encode("é"),
        *tokens.encode("a"),
        *tokens.encode("ab"),
        *tokens.encode("abc"),
        *tokens.SPECIAL_TEXT,
        tokens.media("picture"),
    ]
    folded = promptdigests.folded(array("Q", kinds))
    assert len(set(folded)) == len(kinds)
    assert promptdigests.folded(array("Q", kinds[:3])).tolist() == kinds[:3]
