"""Transfer parameters that are right, wrong or spent: each is answered rightly and leaves nothing.

The letters are those of `tests/e2e/test_connector_cases.py`: what vLLM's own halves do with each
ends an engine, parks a request for ever, pins blocks or reads another's.
"""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm.sampling_params import RepetitionDetectionParams

from disaggpair_connector import engine as seen
from disaggpair_connector.errors import ConfigError
from toypair.clock import CLOCK
from toypair.engine import Params, Shape
from toypair.model import answer
from toypair.pair import FIRST, Pair, a_pair
from toypair.transport import FABRIC

PROMPT = list(range(10, 31))
MORE = [3, 1, 4, 1, 5]


def turn_of(pair: Pair, prompt: list[int], handle: Params | None) -> list[int]:
    """How many blocks each read of a turn has, which is answered rightly."""
    before = len(FABRIC.done)
    outcome = pair.turn(prompt, handle, tokens=4)
    assert outcome.tokens == answer(prompt, 4)
    return [len(read.pieces) for read in FABRIC.done[before:] if read.reader == name_of(pair.p)]


def name_of(engine: Any) -> str:
    return str(engine.worker.nixl_wrapper.name)


def refused(engine: Any) -> dict[str, int]:
    """Reads that an engine did not make, by reason."""
    engine.run(engine.add([1]))  # what has been counted is reported at a step
    prefix = "refused_reads|"
    return {
        name.removeprefix(prefix): int(count)
        for name, count in engine.counted.items()
        if name.startswith(prefix)
    }


def says_twice(tokens: list[int]) -> bool:
    """Whether a token is followed by itself."""
    return any(one == other for one, other in pairwise(tokens))


def test_case_a_what_p_lacks_is_read_and_no_more() -> None:
    with a_pair() as pair:
        held, handle = pair.conversation(PROMPT, tokens=12)
        # D holds 32 tokens in 8 blocks, P 5 full blocks of the prompt.
        assert turn_of(pair, held + MORE, handle) == [3]


def test_case_a_all_is_read_by_a_cold_p() -> None:
    with a_pair() as pair:
        held, handle = pair.conversation(PROMPT, tokens=12)
        pair.settle()
        assert pair.p.scheduler.reset_prefix_cache()
        assert turn_of(pair, held + MORE, handle) == [8]


def test_case_b_a_prompt_that_was_cut_reads_what_it_has_in_common() -> None:
    with a_pair() as pair:
        held, handle = pair.conversation(PROMPT, tokens=12)
        pair.settle()
        assert pair.p.scheduler.reset_prefix_cache()
        # 20 tokens are in common; they are proven in chunks of 8, and 16 tokens are 4 blocks.
        assert turn_of(pair, held[:20], handle) == [4]


def test_case_c_other_tokens_of_the_same_length_are_computed() -> None:
    with a_pair() as pair:
        held, handle = pair.conversation(PROMPT, tokens=12)
        assert turn_of(pair, [49 - token for token in held], handle) == []
        assert refused(pair.p) == {"tokens": 1}
        assert handle["disaggpair"]["lease"] not in pair.d.leases


def test_case_c_an_edit_in_the_middle_reads_what_is_before_it() -> None:
    with a_pair() as pair:
        held, handle = pair.conversation(PROMPT, tokens=12)
        pair.settle()
        assert pair.p.scheduler.reset_prefix_cache()
        edited = [*held[:18], 49 - held[18], *held[19:]]
        assert turn_of(pair, edited, handle) == [4]


def test_case_d_a_count_of_no_tokens_gives_the_lease_back() -> None:
    with a_pair() as pair:
        held, handle = pair.conversation(PROMPT)
        assert turn_of(pair, held + MORE, {**handle, "remote_num_tokens": 0}) == []
        assert handle["disaggpair"]["lease"] not in pair.d.leases
        assert pair.d.book.counters.ended["released"] == 1


def test_case_e_less_than_the_threshold_is_computed() -> None:
    with a_pair(Shape(threshold=8)) as pair:
        held, handle = pair.conversation(PROMPT, tokens=4)  # 24 held, 20 of them P's
        assert turn_of(pair, held + MORE, handle) == []
        assert refused(pair.p) == {"short": 1}
        assert handle["disaggpair"]["lease"] not in pair.d.leases


def test_case_f_a_d_leg_without_blocks_is_computed() -> None:
    with a_pair() as pair:
        params = {"do_remote_prefill": True, "do_remote_decode": False}
        assert pair.decode(PROMPT, params).tokens == answer(PROMPT, 4)
        assert refused(pair.d) == {"no_lease": 1}


@pytest.mark.parametrize(
    "key", ["remote_engine_id", "remote_request_id", "remote_host", "remote_port", "tp_size"]
)
def test_case_g_a_d_leg_with_a_key_missing_ends(key: str) -> None:
    with a_pair() as pair:
        offer = pair.prefill(PROMPT).params
        assert offer is not None
        del offer[key]
        assert pair.decode(PROMPT, offer).tokens == answer(PROMPT, 4)
        # Where the blocks are is the lease's to say; only its address is needed.
        assert len(FABRIC.done) == (0 if key == "remote_host" else 1)


def test_case_h_a_handle_without_a_count_is_read() -> None:
    with a_pair() as pair:
        held, handle = pair.conversation(PROMPT, tokens=12)
        del handle["remote_num_tokens"]
        assert turn_of(pair, held + MORE, handle) == [3]


@pytest.mark.parametrize("params", [{"x": 1}, {"disaggpair": {"conversation": "c"}}])
def test_case_i_a_turn_to_d_alone_gives_a_lease_that_ends(params: Params) -> None:
    with a_pair() as pair:
        outcome = pair.decode(PROMPT, params)
        assert outcome.params is not None
        assert [*pair.d.leases] == [outcome.params["disaggpair"]["lease"]]
        pair.settle()
        assert not pair.d.scheduler.has_requests()
        CLOCK.advance(481.0)
        pair.decode([1], None)
        assert pair.d.leases == {}


def test_case_j_an_abort_gives_no_handle() -> None:
    with a_pair() as pair:
        offer = pair.prefill(PROMPT).params
        name = pair.d.add(PROMPT, offer, tokens=20)
        while not pair.d.outcomes[name].tokens:
            pair.d.step()
        pair.d.abort(name)
        pair.settle()
        assert pair.d.outcomes[name].params is None
        assert pair.d.leases == {}


def test_case_k_an_end_by_repetition_gives_no_handle() -> None:
    with a_pair() as pair:
        detection = RepetitionDetectionParams(max_pattern_size=1, min_count=2)
        prompt = next([first] for first in range(50) if says_twice(answer([first], 60)))
        outcome = pair.turn(prompt, tokens=60, repetition_detection=detection)
        assert outcome.reason == "repetition"
        assert outcome.params is None
        assert pair.d.leases == {}


def test_case_l_a_turn_without_parameters_keeps_nothing() -> None:
    with a_pair() as pair:
        assert pair.decode(PROMPT, None).params is None
        assert pair.d.leases == {}


def test_case_m_a_p_that_has_more_than_d_reads_nothing() -> None:
    with a_pair() as pair:
        held, handle = pair.conversation(PROMPT)
        longer = held + MORE + MORE
        pair.prefill(longer)
        assert turn_of(pair, longer, handle) == []
        assert refused(pair.p) == {"short": 1}


@pytest.mark.parametrize("blocks", [0, 1, 3])
def test_case_n_a_handle_that_was_cut_reads_what_the_lease_holds(blocks: int) -> None:
    with a_pair() as pair:
        held, handle = pair.conversation(PROMPT, tokens=12)
        handle["remote_block_ids"] = [handle["remote_block_ids"][0][:blocks]]
        handle["remote_num_tokens"] = max(1, 4 * blocks)
        assert turn_of(pair, held + MORE, handle) == [3]


def test_case_o_a_handle_to_a_p_with_the_feature_off_is_computed() -> None:
    with a_pair() as pair:
        held, handle = pair.conversation(PROMPT)
        pair.p.half.is_bidirectional_kv_xfer_enabled = False
        assert turn_of(pair, held + MORE, handle) == []
        assert refused(pair.p) == {"off": 1}


def test_case_p_an_engine_that_copies_through_the_host_does_not_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(seen, "device_type", lambda: "cuda")
    with pytest.raises(ConfigError, match="kv_buffer_device"):
        Pair()


@pytest.mark.parametrize("count", ["24", -1, 10**9, None, True, 2.5, [24]])
def test_case_q_a_count_of_any_kind_changes_nothing(count: Any) -> None:
    with a_pair() as pair:
        held, handle = pair.conversation(PROMPT, tokens=12)
        assert turn_of(pair, held + MORE, {**handle, "remote_num_tokens": count}) == [3]


@pytest.mark.parametrize("params", ["text", ["do_remote_decode"], 7, True, 0, {}, []])
@pytest.mark.parametrize("role", ["p", "d"])
def test_parameters_that_are_no_object_are_none(role: str, params: Any) -> None:
    with a_pair() as pair:
        engine = getattr(pair, role)
        name = engine.add(PROMPT, params, tokens=3)
        engine.run(name)
        assert engine.outcomes[name].tokens == answer(PROMPT, 3)
        assert engine.outcomes[name].params is None


# Anything at all.

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
KEYS = [
    "do_remote_prefill",
    "do_remote_decode",
    "remote_block_ids",
    "remote_engine_id",
    "remote_request_id",
    "remote_host",
    "remote_port",
    "remote_num_tokens",
    "tp_size",
    "disaggpair",
]
OURS = ["lease", "token", "port", "conversation"]


@st.composite
def changes(draw: st.DrawFn) -> list[tuple[str, str | None, Any]]:
    """Keys to set to anything, or to take away; the second is one of ours."""
    places = st.tuples(st.sampled_from(KEYS), st.none()) | st.tuples(
        st.just("disaggpair"), st.sampled_from(OURS)
    )
    return [(*draw(places), draw(st.just(...) | values)) for _ in range(draw(st.integers(1, 3)))]


def changed(params: Params, what: list[tuple[str, str | None, Any]]) -> Params:
    params = {**params, "disaggpair": dict(params["disaggpair"])}
    for key, ours, value in what:
        inside = params.get("disaggpair")
        target = inside if ours is not None and isinstance(inside, dict) else params
        name = ours if target is inside and ours is not None else key
        if value is ...:
            target.pop(name, None)
        else:
            target[name] = value
    return params


@settings(max_examples=60)
@given(what=changes(), role=st.sampled_from(["p", "d"]))
def test_no_change_of_the_parameters_ends_an_engine_or_parks_a_request(
    what: list[tuple[str, str | None, Any]], role: str
) -> None:
    with a_pair() as pair:
        held, handle = pair.conversation(PROMPT, tokens=6)
        if role == "p":
            prompt = held + MORE
            outcome = pair.prefill(prompt, changed(handle, what))
            assert outcome.tokens == answer(prompt, 1)
        else:
            offer = pair.prefill(held + MORE, FIRST).params
            assert offer is not None
            outcome = pair.decode(held + MORE, changed(offer, what))
            assert outcome.tokens == answer(held + MORE, 4)
