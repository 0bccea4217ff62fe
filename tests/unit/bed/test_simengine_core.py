"""What the simulated core does with good, wrong, spent and late handles."""

from array import array
from typing import Any

import pytest

from disaggpair_bed.simengine.core import EngineCore
from disaggpair_bed.simengine.decisions import Ending, EngineCrash, TransferSettings
from disaggpair_bed.simengine.localnet import LocalNet, Result
from disaggpair_bed.simengine.localpair import LocalPair
from disaggpair_bed.simengine.twolegs import TURN_1

RECOMPUTE = TransferSettings(bidirectional=True, recompute_on_failure=True)


def words(count: int, start: int = 1) -> "array[int]":
    return array("Q", range(start, start + count))


class Pair:
    """A prefill and a decode engine, and one that is alone."""

    def __init__(self, **prefill: Any) -> None:
        self.net = LocalNet()
        settings: dict[str, Any] = {"prefix_caching": False, **prefill}
        self.p = self.net.engine("P", **settings)
        self.d = self.net.engine("D")
        self.alone = self.net.engine("alone")

    def turn(self, prompt: "array[int]", handle: dict[str, Any] | None = None) -> Result:
        first = self.net.ask(self.p, prompt, handle or TURN_1, max_tokens=1)
        assert first.params is not None
        return self.net.ask(self.d, prompt, first.params)

    def right(self, prompt: "array[int]") -> list[int]:
        """What an engine says that read nothing."""
        return self.net.ask(self.alone, prompt).tokens

    def violations(self) -> list[str]:
        return [item.kind for core in (self.p, self.d) for item in core.oracle.violations]


def history(prompt: "array[int]", answer: Result, more: int = 100) -> "array[int]":
    """The prompt of the next turn."""
    return prompt + array("Q", answer.tokens) + words(more, 900_000)


def first_turn(pair: Pair, tokens: int = 200) -> tuple["array[int]", Result]:
    prompt = words(tokens)
    return prompt, pair.turn(prompt)


def test_p_reads_what_d_has_and_computes_the_rest() -> None:
    pair = Pair()
    prompt, answer = first_turn(pair)
    assert answer.params is not None
    assert answer.params["remote_num_tokens"] == 219
    following = history(prompt, answer)
    second = pair.turn(following, answer.params)
    assert second.tokens == pair.right(following)
    assert pair.p.stats.external_kv_transfer == 219
    assert pair.p.stats.local_compute == 200 + len(following) - 219
    assert pair.violations() == []


def test_an_edited_history_changes_the_answer_and_is_a_violation() -> None:
    pair = Pair()
    prompt, answer = first_turn(pair)
    following = history(prompt, answer)
    following[3] = 77
    second = pair.turn(following, answer.params)
    assert second.ending is Ending.LENGTH
    assert second.tokens != pair.right(following)
    assert pair.violations()[0] == "wrong_kv_read"


def test_one_edited_token_in_the_middle_is_enough() -> None:
    pair = Pair()
    prompt, answer = first_turn(pair)
    following = history(prompt, answer)
    following[150] += 1
    assert pair.turn(following, answer.params).tokens != pair.right(following)


def test_wrong_kv_stays_in_the_prefix_cache_and_poisons_a_plain_request() -> None:
    pair = Pair(prefix_caching=True)
    prompt = words(200)
    answer = pair.turn(prompt)
    pair.p.pool.reset_prefix_cache()
    following = history(prompt, answer)
    following[3] = 77
    wrong = pair.turn(following, answer.params)
    plain = pair.net.ask(pair.p, following)
    assert plain.tokens == wrong.tokens != pair.right(following)
    assert "wrong_kv_in_prefix_cache" in pair.violations()


def test_a_shorter_prompt_reads_shifted_blocks_without_an_error() -> None:
    pair = Pair()
    _, answer = first_turn(pair, 400)
    shorter = words(200)
    again = pair.turn(shorter, answer.params)
    assert again.ending is Ending.LENGTH
    assert again.tokens != pair.right(shorter)
    assert "wrong_kv_read" in pair.violations()


def test_a_second_use_reads_freed_blocks_that_are_still_there() -> None:
    pair = Pair()
    prompt, answer = first_turn(pair)
    following = history(prompt, answer)
    pair.turn(following, answer.params)
    assert pair.turn(following, answer.params).tokens == pair.right(following)
    assert pair.violations() == ["second_use"]


def test_a_second_use_reads_what_others_wrote_meanwhile() -> None:
    pair = Pair()
    pair.d = pair.net.engine("D", num_blocks=40)
    prompt, answer = first_turn(pair)
    following = history(prompt, answer)
    pair.net.ask(pair.p, following, answer.params, max_tokens=1)
    for start in range(5):
        pair.net.ask(pair.d, words(500, 5000 * (start + 1)))
    second = pair.net.ask(pair.p, following, answer.params, max_tokens=1)
    assert second.tokens != pair.right(following)[:1]
    assert sorted(pair.violations()) == ["second_use", "wrong_kv_read"]


def test_blocks_of_somebody_else_are_read_and_seen() -> None:
    pair = Pair()
    prompt, answer = first_turn(pair)
    assert answer.params is not None
    pair.net.ask(pair.d, words(400, 5000))
    group = [block + 20 for block in answer.params["remote_block_ids"][0]]
    foreign = {**answer.params, "remote_block_ids": [group]}
    following = history(prompt, answer)
    assert pair.turn(following, foreign).tokens != pair.right(following)
    assert {"foreign_blocks", "wrong_kv_read"} <= set(pair.violations())


def test_a_handle_cut_to_whole_blocks_stays_aligned() -> None:
    pair = Pair()
    prompt, answer = first_turn(pair)
    following = history(prompt, answer)
    following[150] = 77
    assert answer.params is not None
    cut = {
        **answer.params,
        "remote_block_ids": [answer.params["remote_block_ids"][0][:9]],
        "remote_num_tokens": 9 * 16,
    }
    assert pair.turn(following, cut).tokens == pair.right(following)
    assert pair.violations() == []


def test_no_remote_tokens_release_the_lease_without_a_read() -> None:
    pair = Pair()
    _, answer = first_turn(pair)
    assert answer.params is not None
    free = pair.d.pool.free_blocks
    release = {**answer.params, "remote_num_tokens": 0}
    pair.net.ask(pair.p, words(1), release, max_tokens=1)
    assert pair.d.pool.free_blocks == free + 14
    assert pair.d.oracle.count("released") == 1
    assert pair.p.stats.external_kv_transfer == 0


def test_fewer_tokens_than_the_threshold_are_computed_and_released() -> None:
    pair = Pair(prefix_caching=True)
    prompt, answer = first_turn(pair)
    following = history(prompt, answer)
    assert pair.turn(following, answer.params).tokens == pair.right(following)
    assert pair.p.stats.external_kv_transfer == 0
    assert pair.d.oracle.count("released") == 1


def test_a_lease_runs_out_on_d_and_its_blocks_return() -> None:
    pair = Pair()
    first_turn(pair)
    everything = pair.d.pool.num_blocks - 1
    pair.net.pass_time(479)
    assert pair.d.pool.free_blocks < everything
    pair.net.pass_time(1)
    assert pair.d.pool.free_blocks == everything
    assert pair.d.stats.expired_requests == 1
    assert pair.d.oracle.count("expired") == 1


@pytest.mark.parametrize("waited", [476, 481])
def test_a_late_handle_ends_the_request_under_fail(waited: float) -> None:
    pair = Pair()
    prompt, answer = first_turn(pair)
    pair.net.pass_time(waited)
    late = pair.net.ask(pair.p, history(prompt, answer), answer.params, max_tokens=1)
    assert late.ending is Ending.ERROR
    assert late.params is None
    assert pair.p.pool.free_blocks == pair.p.pool.num_blocks - 1


def test_a_late_handle_hangs_a_cold_p_under_recompute() -> None:
    pair = Pair(transfer=RECOMPUTE)
    prompt, answer = first_turn(pair)
    pair.net.pass_time(481)
    late = pair.net.ask(pair.p, history(prompt, answer), answer.params, max_tokens=1)
    pair.net.pass_time(100_000)
    assert late.ending is None
    assert pair.p.waiting == 1
    assert pair.p.pool.usage > 0


def test_a_late_handle_is_recomputed_by_a_p_that_has_some_of_the_prompt() -> None:
    pair = Pair(transfer=RECOMPUTE, prefix_caching=True)
    prompt, answer = first_turn(pair)
    following = history(prompt, answer)
    pair.p.pool.reset_prefix_cache()
    pair.net.ask(pair.p, prompt[:64])
    pair.net.pass_time(481)
    late = pair.net.ask(pair.p, following, answer.params, max_tokens=1)
    assert late.ending is Ending.LENGTH
    assert late.tokens == pair.right(following)[:1]


def test_d_recomputes_when_p_is_gone_under_recompute() -> None:
    pair = Pair()
    pair.d = pair.net.engine("D", RECOMPUTE)
    prompt = words(200)
    first = pair.net.ask(pair.p, prompt, TURN_1, max_tokens=1)
    del pair.net.cores["P"]
    assert pair.net.ask(pair.d, prompt, first.params).tokens == pair.right(prompt)


def test_the_flag_on_d_alone_parks_turn_2_for_ever() -> None:
    pair = Pair(transfer=TransferSettings(bidirectional=False))
    prompt, answer = first_turn(pair)
    second = pair.net.ask(pair.p, history(prompt, answer), answer.params, max_tokens=1)
    assert second.ending is None
    assert pair.p.waiting == 1


def test_an_abort_of_a_parked_request_without_a_read_loses_its_blocks() -> None:
    pair = Pair(transfer=TransferSettings(bidirectional=False))
    prompt, answer = first_turn(pair)
    request_id = pair.net.submit(pair.p, history(prompt, answer), answer.params, max_tokens=1)
    pair.net.run()
    pair.p.abort(request_id, pair.net.now)
    pair.net.pass_time(100_000)
    assert pair.p.waiting == 0
    assert pair.p.pool.usage > 0


def test_params_without_flags_on_d_pin_blocks_for_ever() -> None:
    pair = Pair()
    pair.net.ask(pair.d, words(100), {"conversation": "c"})
    pair.net.pass_time(100_000)
    assert pair.d.pool.usage > 0
    assert pair.d.oracle.count("leaked") == 1


@pytest.mark.parametrize("params", [None, {}])
def test_no_params_on_d_pin_nothing(params: dict[str, Any] | None) -> None:
    pair = Pair()
    assert pair.net.ask(pair.d, words(100), params).params is None
    assert pair.d.pool.usage == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"remote_num_tokens": "219"},
        {"remote_num_tokens": 10**6},
        {"remote_block_ids": [1, 2, 3]},
        {"remote_block_ids": [[1]]},
        {"remote_block_ids": [["a"] * 20]},
        {"remote_block_ids": [[1] * 20, [2] * 20]},
    ],
)
def test_a_malformed_handle_kills_p(changes: dict[str, Any]) -> None:
    pair = Pair()
    prompt, answer = first_turn(pair)
    assert answer.params is not None
    handle = {**answer.params, **changes}
    with pytest.raises(EngineCrash):
        pair.net.ask(pair.p, history(prompt, answer), handle, max_tokens=1)


def test_block_ids_as_text_are_taken_as_numbers() -> None:
    pair = Pair()
    prompt, answer = first_turn(pair)
    assert answer.params is not None
    group = [str(block) for block in answer.params["remote_block_ids"][0]]
    following = history(prompt, answer)
    handle = {**answer.params, "remote_block_ids": [group]}
    assert pair.turn(following, handle).tokens == pair.right(following)


def test_d_dies_of_params_without_blocks() -> None:
    pair = Pair()
    prompt = words(100)
    first = pair.net.ask(pair.p, prompt, TURN_1, max_tokens=1)
    assert first.params is not None
    with pytest.raises(EngineCrash):
        pair.net.ask(pair.d, prompt, {**first.params, "remote_block_ids": None})


def test_a_refused_request_on_d_frees_p_at_once() -> None:
    pair = Pair()
    first = pair.net.ask(pair.p, words(100), TURN_1, max_tokens=1)
    assert first.params is not None
    pair.d.refuse(first.params)
    pair.net.run()
    assert pair.p.pool.usage == 0
    assert pair.p.oracle.count("released") == 1


def test_a_request_that_p_refuses_keeps_the_lease_of_d() -> None:
    pair = Pair()
    _, answer = first_turn(pair)
    assert answer.params is not None
    pair.p.refuse(dict(answer.params))
    pair.net.run()
    assert pair.d.oracle.count("live") == 1


def test_a_lease_of_p_lives_as_long_as_d_waits_for_it() -> None:
    pair = Pair()
    pair.d = pair.net.engine("D", num_blocks=20)
    blocker = pair.net.ask(pair.d, words(200), {"do_remote_prefill": False, "x": 1})
    assert blocker.params is not None
    prompt = words(300)
    first = pair.net.ask(pair.p, prompt, TURN_1, max_tokens=1)
    pair.net.submit(pair.d, prompt, first.params)
    for _ in range(60):
        pair.net.pass_time(2)
    assert pair.p.oracle.count("live") == 1
    assert pair.d.waiting == 1


def test_without_heartbeats_a_lease_of_p_ends_after_30_seconds() -> None:
    pair = Pair()
    pair.net.ask(pair.p, words(100), TURN_1, max_tokens=1)
    pair.net.pass_time(29)
    assert pair.p.oracle.count("live") == 1
    pair.net.pass_time(1)
    assert pair.p.oracle.count("expired") == 1


def pinned_decode(blocks: int) -> tuple[Pair, EngineCore]:
    """A pair whose D has one conversation of 14 blocks pinned."""
    pair = Pair()
    pair.d = pair.net.engine("D", num_blocks=blocks + 1)
    first_turn(pair)
    return pair, pair.d


def test_a_full_d_makes_everybody_wait_until_the_lease_ends() -> None:
    pair, d = pinned_decode(20)
    plain = pair.net.submit(d, words(150, 7000))
    pair.net.run()
    assert pair.net.results[plain].tokens == []
    pair.net.pass_time(480)
    assert pair.net.results[plain].tokens == pair.right(words(150, 7000))


def test_decode_stops_midway_when_it_cannot_grow_and_goes_on_after_the_lease() -> None:
    pair, d = pinned_decode(20)
    plain = pair.net.submit(d, words(90, 7000))
    pair.net.run()
    assert 0 < len(pair.net.results[plain].tokens) < 20
    assert d.stats.preemptions == 1
    pair.net.pass_time(480)
    assert pair.net.results[plain].tokens == pair.right(words(90, 7000))


def test_the_last_admitted_request_gives_way_when_decode_grows() -> None:
    net = LocalNet()
    core = net.engine("D", num_blocks=14)
    first = net.submit(core, words(90), max_tokens=30)
    second = net.submit(core, words(90, 500), max_tokens=30)
    net.run()
    alone = net.engine("alone")
    assert net.results[first].tokens == net.ask(alone, words(90), max_tokens=30).tokens
    assert net.results[second].tokens == net.ask(alone, words(90, 500), max_tokens=30).tokens
    assert core.stats.preemptions > 0


def test_an_abort_during_a_read_is_seen_and_frees_the_blocks_afterwards() -> None:
    pair = Pair()
    prompt, answer = first_turn(pair)
    pair.net.hold_reads = True
    request_id = pair.net.submit(pair.p, history(prompt, answer), answer.params, max_tokens=1)
    pair.net.run()
    pair.p.abort(request_id, pair.net.now)
    assert pair.p.pool.usage > 0
    pair.net.release_reads()
    assert pair.p.pool.usage == 0
    assert pair.violations() == ["abort_during_read"]


def test_an_abort_during_a_read_can_kill_the_engine() -> None:
    pair = Pair(abort_during_read_crashes=True)
    prompt, answer = first_turn(pair)
    pair.net.hold_reads = True
    request_id = pair.net.submit(pair.p, history(prompt, answer), answer.params, max_tokens=1)
    pair.net.run()
    with pytest.raises(EngineCrash):
        pair.p.abort(request_id, pair.net.now)


def test_an_aborted_decode_gives_no_handle_and_frees_its_blocks() -> None:
    pair = Pair()
    prompt = words(100)
    first = pair.net.ask(pair.p, prompt, TURN_1, max_tokens=1)
    pair.net.hold_reads = True
    request_id = pair.net.submit(pair.d, prompt, first.params)
    pair.net.run()
    pair.net.hold_reads = False
    for core, job in pair.net.held:
        owner = pair.net.cores[job.peer.engine_id]
        data = owner.connector.serve_read(job.remote_request_id, job.remote_block_ids[0])
        core.read_finished(job.request_id, data, pair.net.now)
    pair.d.step(pair.net.now)
    pair.d.abort(request_id, pair.net.now)
    assert pair.d.pool.usage == 0
    assert len(pair.d.connector.leases) == 0


def test_another_cache_salt_does_not_hit_the_prefix_cache() -> None:
    net = LocalNet()
    core = net.engine("P")
    net.ask(core, words(100), salt="a")
    net.ask(core, words(100), salt="b")
    assert core.stats.local_cache_hit == 0
    net.ask(core, words(100), salt="b")
    assert core.stats.local_cache_hit == 96


def test_a_full_local_hit_leaves_the_last_block_to_compute() -> None:
    net = LocalNet()
    core = net.engine("P")
    net.ask(core, words(96))
    net.ask(core, words(96))
    assert core.stats.local_cache_hit == 80


def test_d_reports_the_cache_hits_of_p() -> None:
    pair = Pair(prefix_caching=True)
    prompt = words(200)
    pair.turn(prompt)
    pair.d = pair.net.engine("D")
    assert pair.turn(prompt).cached_tokens == 192


def test_a_prompt_longer_than_a_step_is_computed_in_parts() -> None:
    net = LocalNet()
    parts = net.ask(net.engine("parts", max_batched_tokens=64), words(500))
    whole = net.ask(net.engine("whole"), words(500))
    assert parts.tokens == whole.tokens


def test_an_engine_without_a_connector_ignores_params() -> None:
    net = LocalNet()
    core = net.engine("P", connected=False)
    result = net.ask(core, words(100), TURN_1)
    assert result.params is None
    assert core.pool.usage == 0


def test_a_read_waits_until_its_prompt_fits_beside_those_that_have_begun() -> None:
    pair = LocalPair(num_blocks=25)
    talks = [pair.first_turn(150, start) for start in (1, 1000)]
    handles = [handle for _, handle in talks]
    prompts = [prompt + words(60, 900_500) for prompt, _ in talks]  # 21 blocks, 11 of them read
    names = [
        pair.net.submit(pair.p, prompt, handle, max_tokens=1)
        for prompt, handle in zip(prompts, handles, strict=True)
    ]
    pair.net.run()
    assert pair.net.results[names[0]].tokens == pair.right(prompts[0], max_tokens=1)
    assert pair.net.results[names[1]].tokens == []
    pair.net.pass_time(31)  # nobody reads what the first one has left
    assert pair.net.results[names[1]].tokens == pair.right(prompts[1], max_tokens=1)
    assert pair.is_clean()
