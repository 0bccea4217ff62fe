"""What a simulated D reads of P with our connector, and what it computes instead."""

import pytest

from disaggpair_bed.simengine.decisions import Ending
from disaggpair_bed.simengine.heartbeats import Heartbeats
from disaggpair_bed.simengine.localpair import LocalPair, words
from disaggpair_bed.simengine.twolegs import TURN_1


def test_d_reads_what_p_computed_once_its_tokens_are_compared() -> None:
    pair = LocalPair()
    prompt = words(600)
    assert pair.turn(prompt).tokens == pair.right(prompt)
    assert pair.d.stats.external_kv_transfer == pair.d.stats.verified_tokens == 600
    assert pair.p.oracle.count("consumed") == 1
    assert pair.p.pool.usage == 0
    assert pair.is_clean()


def test_what_p_computed_of_another_prompt_is_not_read_and_freed_at_once() -> None:
    pair = LocalPair()
    prompt, other = words(600), words(600, 5000)
    first = pair.net.ask(pair.p, other, TURN_1, max_tokens=1)
    assert pair.net.ask(pair.d, prompt, first.params).tokens == pair.right(prompt)
    assert pair.d.stats.refused_reads == {"tokens": 1}
    assert pair.p.oracle.count("released") == 1
    assert pair.p.pool.usage == 0
    assert pair.is_clean()


@pytest.mark.parametrize(("place", "read"), [(255, 0), (256, 256), (599, 512)])
def test_d_computes_the_part_that_p_has_not(place: int, read: int) -> None:
    pair = LocalPair()
    prompt = words(600)
    first = pair.net.ask(pair.p, prompt, TURN_1, max_tokens=1)
    prompt[place] += 7
    assert pair.net.ask(pair.d, prompt, first.params).tokens == pair.right(prompt)
    assert pair.d.stats.external_kv_transfer == read
    assert pair.is_clean()


def test_two_ds_with_one_reply_of_p_read_it_once_and_both_answer_right() -> None:
    pair = LocalPair()
    other = pair.net.engine("D2", pair="decode", num_blocks=200)
    prompt = words(600)
    first = pair.net.ask(pair.p, prompt, TURN_1, max_tokens=1)
    pair.net.hold_reads = True
    legs = [pair.net.submit(d, prompt, first.params) for d in (pair.d, other)]
    pair.net.run()
    assert other.stats.refused_reads == {"taken": 1}
    pair.net.ask(pair.p, words(2000, 7000), TURN_1, max_tokens=1)
    pair.net.release_reads()
    expected = pair.right(prompt)
    assert [pair.net.results[leg].tokens for leg in legs] == [expected, expected]
    assert other.oracle.violations == []
    assert pair.is_clean()


def test_a_reply_of_p_is_read_once_though_its_blocks_are_another_requests_by_now() -> None:
    pair = LocalPair(num_blocks=60)
    other = pair.net.engine("D2", pair="decode", num_blocks=200)
    prompt = words(600)
    first = pair.net.ask(pair.p, prompt, TURN_1, max_tokens=1)
    expected = pair.right(prompt)
    assert pair.net.ask(pair.d, prompt, first.params).tokens == expected
    pair.net.ask(pair.p, words(900, 7000), TURN_1, max_tokens=1)
    for again in (pair.d, other):
        assert pair.net.ask(again, prompt, first.params).tokens == expected
        assert again.stats.refused_reads == {"unknown": 1}
    assert other.oracle.violations == []
    assert pair.is_clean()


def test_a_d_leg_that_the_api_refuses_frees_p_at_once() -> None:
    pair = LocalPair()
    prompt = words(600)
    first = pair.net.ask(pair.p, prompt, TURN_1, max_tokens=1)
    assert first.params is not None
    pair.d.refuse(dict(first.params))
    pair.net.run()
    assert pair.p.oracle.count("released") == 1
    assert pair.p.pool.usage == 0
    assert pair.net.ask(pair.d, prompt, first.params).tokens == pair.right(prompt)
    assert pair.is_clean()


def test_a_reply_that_d_takes_too_late_is_not_read_and_p_has_its_blocks_back() -> None:
    pair = LocalPair()
    prompt = words(600)
    first = pair.net.ask(pair.p, prompt, TURN_1, max_tokens=1)
    pair.net.pass_time(20)
    assert pair.p.pool.usage == 0
    assert pair.net.ask(pair.d, prompt, first.params).tokens == pair.right(prompt)
    assert pair.d.stats.refused_reads == {"unknown": 1}
    assert pair.is_clean()


def waiting_for_blocks(pair: LocalPair) -> tuple[str, str]:
    """A request that fills D, and a D leg behind it that has its answer from P."""
    prompt = words(600)
    first = pair.net.ask(pair.p, prompt, TURN_1, max_tokens=1)
    filling = pair.net.submit(pair.d, words(800, 7000), max_tokens=1000)
    pair.d.step(pair.net.now)
    return filling, pair.net.submit(pair.d, prompt, first.params)


def step_d(pair: LocalPair, seconds: int, *, beating: bool) -> None:
    """Let D step once a second, its heartbeats reaching P or not."""
    for _ in range(seconds):
        pair.net.now += 1
        beats = pair.d.step(pair.net.now).heartbeats
        for beat in beats if beating else ():
            pair.p.connector.serve_heartbeat(beat.request_ids, pair.net.now)


def test_heartbeats_keep_what_p_computed_while_d_has_no_blocks_for_it() -> None:
    pair = LocalPair(decode_blocks=70)
    filling, leg = waiting_for_blocks(pair)
    step_d(pair, 100, beating=True)
    pair.d.abort(filling, pair.net.now)
    pair.net.run()
    assert pair.net.results[leg].tokens == pair.right(words(600))
    assert pair.d.stats.external_kv_transfer == 600
    assert pair.is_clean()


def test_what_p_may_have_freed_is_not_read_by_a_d_that_had_no_blocks_for_it() -> None:
    pair = LocalPair(decode_blocks=70)
    pair.d.connector.heartbeats = Heartbeats(30, enabled=False)
    filling, leg = waiting_for_blocks(pair)
    step_d(pair, 6, beating=False)
    pair.d.abort(filling, pair.net.now)
    pair.net.run()
    assert pair.net.results[leg].tokens == pair.right(words(600))
    assert pair.d.stats.refused_reads == {"late": 1}
    assert pair.p.oracle.count("released") == 1
    assert pair.is_clean()


def test_heartbeats_keep_what_p_computed_for_as_long_as_d_reads_it() -> None:
    pair = LocalPair()
    prompt = words(600)
    first = pair.net.ask(pair.p, prompt, TURN_1, max_tokens=1)
    pair.net.hold_reads = True
    leg = pair.net.submit(pair.d, prompt, first.params)
    pair.net.run()
    step_d(pair, 100, beating=True)
    pair.net.release_reads()
    assert pair.net.results[leg].tokens == pair.right(prompt)
    assert pair.d.stats.refused_reads == {}
    assert pair.is_clean()


def test_a_read_during_which_d_stood_still_counts_for_nothing() -> None:
    pair = LocalPair()
    prompt = words(600)
    first = pair.net.ask(pair.p, prompt, TURN_1, max_tokens=1)
    pair.net.hold_reads = True
    leg = pair.net.submit(pair.d, prompt, first.params)
    pair.net.run()
    pair.net.pass_time(40)
    assert pair.p.pool.usage == 0
    pair.net.release_reads()
    assert pair.net.results[leg].ending is Ending.ERROR
    assert pair.d.stats.refused_reads == {"failed": 1}
    assert pair.is_clean()


def test_a_client_that_leaves_while_d_reads_leaves_nothing_behind() -> None:
    pair = LocalPair()
    first = pair.net.ask(pair.p, words(600), TURN_1, max_tokens=1)
    pair.net.hold_reads = True
    leg = pair.net.submit(pair.d, words(600), first.params)
    pair.net.run()
    pair.d.abort(leg, pair.net.now)
    pair.net.release_reads()
    assert pair.d.pool.usage == pair.p.pool.usage == 0
    assert [found.kind for found in pair.d.oracle.violations] == ["abort_during_read"]
    assert pair.p.oracle.violations == []


def test_a_client_that_leaves_before_d_reads_gives_p_its_blocks_back() -> None:
    pair = LocalPair()
    first = pair.net.ask(pair.p, words(600), TURN_1, max_tokens=1)
    pair.net.hold_answers = True
    leg = pair.net.submit(pair.d, words(600), first.params)
    pair.net.run()
    pair.d.abort(leg, pair.net.now)
    pair.net.run()
    assert pair.p.oracle.count("released") == 1
    assert pair.p.pool.usage == 0
    assert pair.is_clean()


def test_a_d_whose_p_is_gone_computes() -> None:
    pair = LocalPair()
    prompt = words(600)
    first = pair.net.ask(pair.p, prompt, TURN_1, max_tokens=1)
    del pair.net.cores["P"]
    assert pair.net.ask(pair.d, prompt, first.params).tokens == pair.right(prompt)
    assert pair.d.stats.refused_reads == {"unreachable": 1}
    assert pair.d.oracle.violations == []


def test_the_cache_hits_of_p_are_still_reported_by_d() -> None:
    pair = LocalPair(prefix_caching=True)
    prompt = words(200)
    pair.turn(prompt)
    pair.new_decode()
    assert pair.turn(prompt).cached_tokens == 192
