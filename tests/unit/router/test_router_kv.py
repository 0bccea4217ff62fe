from typing import Any

import orjson
import pytest

from disaggpair_bed.fakes.upstream import decode_handle, prefill_params
from disaggpair_router.kv import (
    FIRST_TURN,
    Api,
    InvalidParams,
    checked_handle,
    checked_prefill_params,
    decode_body,
    prefill_body,
    release_body,
    without_transfer_keys,
)

BODY: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "hi"}],
    "stream": True,
    "stream_options": {"include_usage": True},
    "max_tokens": 100,
    "tools": [{"type": "function", "function": {"name": "kv_transfer_params"}}],
    "x_unknown": {"kv_transfer_params": "a value of a field we do not know"},
}


def test_h75_client_parameters_are_deleted_wherever_vllm_reads_them() -> None:
    bad = {"remote_host": "203.0.113.1"}
    sent = {
        **BODY,
        "kv_transfer_params": bad,
        "ec_transfer_params": bad,
        "vllm_xargs": {"kv_transfer_params": bad, "a": {"kv_transfer_params": bad, "b": 1}},
        "extra_body": {"vllm_xargs": [{"kv_transfer_params": bad}, "c"]},
    }
    kept = without_transfer_keys(sent)
    assert b"203.0.113.1" not in orjson.dumps(kept)
    assert kept == {
        **BODY,
        "vllm_xargs": {"a": {"b": 1}},
        "extra_body": {"vllm_xargs": [{}, "c"]},
    }


@pytest.mark.parametrize("value", [None, 3, "x", []])
def test_h75_nested_fields_of_another_type_do_no_harm(value: object) -> None:
    assert without_transfer_keys({"vllm_xargs": value}) == {"vllm_xargs": value}


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_h46_the_prefill_leg_makes_one_token(api: Api) -> None:
    sent = prefill_body(api, {**BODY, "max_completion_tokens": 50})
    assert sent["max_tokens"] == 1
    assert sent["stream"] is False
    assert sent["max_completion_tokens"] == (1 if api == "chat" else 50)


@pytest.mark.parametrize(
    "field",
    [
        pytest.param("min_tokens", id="h47"),
        pytest.param("stream_options", id="h48"),
        pytest.param("logprobs", id="h51"),
        "logprob_token_ids",
        pytest.param("structured_outputs", id="h54"),
        pytest.param("ignore_eos", id="h55"),
        pytest.param("stop", id="h55-stop"),
    ],
)
def test_what_concerns_the_answer_only_stays_away_from_prefill(field: str) -> None:
    body = {**BODY, field: "value"}
    assert field not in prefill_body("chat", body)
    assert decode_body(body, {})[field] == "value"


def test_h87_a_request_id_in_the_body_is_not_the_clients_to_give() -> None:
    assert "request_id" not in without_transfer_keys({**BODY, "request_id": "mine"})


@pytest.mark.parametrize(
    "field", ["response_format", "tool_choice", "chat_template_kwargs", "cache_salt", "priority"]
)
def test_what_shapes_the_prompt_is_the_same_on_both_legs(field: str) -> None:
    body = {**BODY, field: {"a": 1}}
    assert prefill_body("chat", body)[field] == decode_body(body, {})[field] == {"a": 1}


def test_h64_unknown_fields_survive_on_both_legs() -> None:
    assert prefill_body("chat", BODY)["x_unknown"] == BODY["x_unknown"]
    assert decode_body(BODY, None) == BODY


def test_a_first_turn_asks_for_nothing_to_be_read() -> None:
    assert prefill_body("chat", BODY)["kv_transfer_params"] == FIRST_TURN


def test_h08_a_handle_is_forwarded_as_it_came() -> None:
    given = decode_handle(remote_blocks_expiry_time=0.25, x_new_key=[1])
    handle = checked_handle(given)
    sent = orjson.loads(orjson.dumps(prefill_body("chat", BODY, handle.for_prefill())))
    assert sent["kv_transfer_params"] == given
    assert handle.engine == "D-engine"
    assert handle.tokens == 47


def test_a_turn_on_one_engine_has_no_parameters_at_all() -> None:
    assert "kv_transfer_params" not in decode_body(BODY, None)


def test_a_whole_answer_is_asked_for_without_stream_options() -> None:
    sent = decode_body(BODY, {"a": 1}, whole=True)
    assert sent["stream"] is False
    assert "stream_options" not in sent
    assert BODY["stream"] is True


def test_a_release_claims_no_tokens() -> None:
    body = release_body("m", checked_handle(decode_handle()))
    assert body["kv_transfer_params"] == decode_handle(remote_num_tokens=0)
    assert body["max_tokens"] == 1
    assert body["model"] == "m"
    assert "model" not in release_body("", checked_handle(decode_handle()))


BAD: list[tuple[str, object]] = [
    ("do_remote_prefill", None),
    ("remote_engine_id", ""),
    ("remote_request_id", 3),
    ("remote_host", None),
    ("remote_port", "5600"),
    ("remote_port", 70_000),
    ("remote_port", True),
    ("tp_size", 0),
    ("dcp_size", "1"),
    ("pp_size", 1.0),
    ("remote_block_ids", None),
    ("remote_block_ids", []),
    ("remote_block_ids", [[]]),
    ("remote_block_ids", [1, 2]),
    ("remote_block_ids", [["1"]]),
    ("remote_block_ids", [[-1]]),
    ("remote_block_ids", [[True]]),
]


@pytest.mark.parametrize(("field", "value"), BAD)
def test_h27_parameters_with_a_wrong_field_are_refused(field: str, value: object) -> None:
    with pytest.raises(InvalidParams, match=field):
        checked_handle(decode_handle(**{field: value}))
    with pytest.raises(InvalidParams, match=field):
        checked_prefill_params(prefill_params(**{field: value}))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("do_remote_decode", False),
        ("do_remote_prefill", True),
        ("remote_num_tokens", 0),
        ("remote_num_tokens", "47"),
        ("remote_num_tokens", 47.0),
        ("remote_blocks_expiry_time", "soon"),
    ],
)
def test_h27_a_handle_with_a_wrong_field_is_refused(field: str, value: object) -> None:
    with pytest.raises(InvalidParams, match=field):
        checked_handle(decode_handle(**{field: value}))


@pytest.mark.parametrize("value", [None, [], "x", 3, {}])
def test_h27_parameters_that_are_no_object_of_ours_are_refused(value: object) -> None:
    with pytest.raises(InvalidParams):
        checked_handle(value)
    with pytest.raises(InvalidParams):
        checked_prefill_params(value)


def test_h26_decode_flags_in_prefills_answer_are_refused() -> None:
    with pytest.raises(InvalidParams, match="do_remote_decode"):
        checked_prefill_params(prefill_params(do_remote_decode=True))


@pytest.mark.parametrize("key", ["tp_size", "dcp_size", "pp_size", "remote_blocks_expiry_time"])
def test_keys_that_older_releases_lack_are_optional(key: str) -> None:
    given = decode_handle()
    del given[key]
    assert orjson.loads(checked_handle(given).raw) == given


def test_a_handle_that_cannot_be_written_again_is_none() -> None:
    deep: Any = {}
    for _ in range(300):
        deep = {"a": deep}
    with pytest.raises(InvalidParams, match="nested too deeply"):
        checked_handle(decode_handle(later=deep))
