"""Edits touch the fields they name, and nothing that is malformed counts as a handle."""

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from disaggpair_bed.fakes.upstream import decode_handle, prefill_params
from disaggpair_router.kv import (
    PREFILL_DROPS,
    PREFILL_SETS,
    TRANSFER_KEYS,
    Api,
    InvalidParams,
    checked_handle,
    checked_prefill_params,
    decode_body,
    prefill_body,
    prefill_drops,
    without_transfer_keys,
)

KEYS = st.one_of(
    st.text(max_size=6),
    st.sampled_from(sorted(PREFILL_DROPS | TRANSFER_KEYS | set(PREFILL_SETS["chat"]))),
    st.sampled_from(["vllm_xargs", "extra_body", "messages", "tools"]),
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
BODIES = st.dictionaries(KEYS, VALUES, max_size=8)
APIS: st.SearchStrategy[Api] = st.sampled_from(["chat", "completions", "responses", "messages"])


@given(APIS, BODIES)
def test_h64_the_prefill_leg_keeps_all_other_fields(api: Api, body: dict[str, Any]) -> None:
    sent = prefill_body(api, body, {"a": 1})
    touched = prefill_drops(api) | PREFILL_SETS[api].keys() | {"kv_transfer_params"}
    kept = {key: value for key, value in sent.items() if key not in touched}
    assert kept == {key: value for key, value in body.items() if key not in touched}
    assert not sent.keys() & prefill_drops(api)


@given(BODIES)
def test_h64_the_decode_leg_keeps_all_fields(body: dict[str, Any]) -> None:
    before = orjson.dumps(body)
    assert decode_body(body, None) == body
    assert decode_body(body, {"a": 1}) == {**body, "kv_transfer_params": {"a": 1}}
    assert orjson.dumps(body) == before


@given(BODIES)
def test_h75_no_key_survives_where_vllm_looks(body: dict[str, Any]) -> None:
    kept = without_transfer_keys(body)
    assert not kept.keys() & TRANSFER_KEYS
    for key in ("vllm_xargs", "extra_body"):
        assert b'"kv_transfer_params":' not in orjson.dumps(kept.get(key))
    for key in body.keys() - TRANSFER_KEYS - {"vllm_xargs", "extra_body"}:
        assert kept[key] == body[key]


@given(st.one_of(VALUES, st.dictionaries(st.sampled_from(sorted(decode_handle())), VALUES)))
def test_h27_malformed_parameters_are_refused_and_never_crash(value: Any) -> None:
    for check in (checked_handle, checked_prefill_params):
        try:
            check(value)
        except InvalidParams:
            continue
        raise AssertionError


@given(st.sampled_from(sorted(prefill_params())), VALUES)
def test_h27_one_wrong_field_is_refused_or_harmless(key: str, value: Any) -> None:
    try:
        handle = checked_handle(decode_handle(**{key: value}))
    except InvalidParams:
        return
    sent = orjson.loads(handle.raw)
    assert sent["do_remote_decode"]
    assert sent["remote_num_tokens"] >= 1
    assert all(isinstance(block, int) for group in sent["remote_block_ids"] for block in group)
