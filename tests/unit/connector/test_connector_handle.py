"""What of `kv_transfer_params` is taken, and what it is taken for."""

from types import SimpleNamespace
from typing import Any

import pytest

from disaggpair_connector import handle
from disaggpair_connector.digest import digests_of
from disaggpair_connector.handle import Direct, HandleError
from disaggpair_connector.table import LeaseTable

Params = dict[str, Any]

PEER: Params = {
    "remote_engine_id": "engine",
    "remote_request_id": "request",
    "remote_host": "127.0.0.1",
    "remote_port": 5600,
    "tp_size": 1,
}
D_HANDLE: Params = {
    **PEER,
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_block_ids": [[1, 2]],
    "remote_num_tokens": 20,
    "disaggpair": {"lease": "l1", "token": "t1", "port": 5700, "conversation": "c"},
}
P_HANDLE: Params = {**D_HANDLE, "do_remote_decode": False, "do_remote_prefill": True}


def with_ours(params: Params, **changes: Any) -> Params:
    return {**params, "disaggpair": {**params["disaggpair"], **changes}}


def test_a_handle_names_whom_to_ask_for_which_lease() -> None:
    found = handle.prefill_leg(D_HANDLE)
    assert found is not None
    assert (found.host, found.port, found.lease, found.token) == ("127.0.0.1", 5700, "l1", "t1")
    assert not found.is_release


def test_a_handle_of_no_tokens_gives_the_lease_up() -> None:
    found = handle.prefill_leg({**D_HANDLE, "remote_num_tokens": 0})
    assert found is not None
    assert found.is_release


def test_a_first_turn_has_no_handle() -> None:
    assert handle.prefill_leg({"do_remote_decode": True}) is None


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({**D_HANDLE, "do_remote_prefill": True}, "role"),
        ({"do_remote_prefill": False}, "role"),
        ({**D_HANDLE, "disaggpair": None}, "no_lease"),
        ({**D_HANDLE, "disaggpair": [1]}, "malformed"),
        ({**D_HANDLE, "remote_host": 7}, "malformed"),
        (with_ours(D_HANDLE, lease=None), "malformed"),
        (with_ours(D_HANDLE, token=""), "malformed"),
        (with_ours(D_HANDLE, token="x" * 1025), "malformed"),
        (with_ours(D_HANDLE, port=True), "malformed"),
        (with_ours(D_HANDLE, port="5700"), "malformed"),
        (with_ours(D_HANDLE, port=65_536), "malformed"),
    ],
)
def test_a_p_leg_that_cannot_be_used_is_named_by_its_fault(params: Params, reason: str) -> None:
    with pytest.raises(HandleError) as caught:
        handle.prefill_leg(params)
    assert caught.value.reason == reason


def test_a_d_leg_names_whom_to_ask_as_a_p_leg_does() -> None:
    assert handle.decode_leg(P_HANDLE) == handle.prefill_leg(D_HANDLE)


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({**P_HANDLE, "do_remote_decode": True}, "role"),
        ({**P_HANDLE, "disaggpair": None}, "no_lease"),
        ({**P_HANDLE, "disaggpair": {"conversation": "c"}}, "no_lease"),
        ({**P_HANDLE, "remote_host": ["127.0.0.1"]}, "malformed"),
        (with_ours(P_HANDLE, lease=7), "malformed"),
        (with_ours(P_HANDLE, port=0), "malformed"),
        ({"disaggpair": {"lease": "l"}}, "malformed"),
    ],
)
def test_a_d_leg_that_cannot_be_used_is_named_by_its_fault(params: Params, reason: str) -> None:
    with pytest.raises(HandleError) as caught:
        handle.decode_leg(params)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"remote_engine_id": None}, "remote_engine_id"),
        ({"remote_request_id": 3}, "remote_request_id"),
        ({"remote_port": 0}, "remote_port"),
        ({"remote_port": 5600.0}, "remote_port"),
        ({"tp_size": 0}, "tp_size"),
        ({"tp_size": "1"}, "tp_size"),
        ({"tp_size": 2**31 - 1}, "tp_size"),
        ({"remote_request_id": "\ud800"}, "remote_request_id"),
        ({"remote_registration_generation": -1}, "remote_registration_generation"),
    ],
)
def test_a_peer_is_checked_key_by_key(change: Params, key: str) -> None:
    with pytest.raises(HandleError, match=key):
        handle.peer_of({**PEER, **change})


@pytest.mark.parametrize(
    ("change", "is_renewable"),
    [({}, True), ({"remote_request_id": "one,two"}, False), ({"tp_size": None}, False)],
)
def test_a_peer_says_whether_heartbeats_can_name_its_request(
    change: Params, is_renewable: bool
) -> None:
    assert handle.peer_of({**PEER, **change}).is_renewable == is_renewable


def test_the_parameters_for_a_lease_are_a_handle_of_it() -> None:
    table = LeaseTable(
        clock=lambda: 0.0, new_token=lambda: "t1", epoch="e", ttl_s=1, claim_s=1, read_s=1
    )
    lease = table.grant(
        id="l1",
        conversation="c",
        tokens=20,
        block_ids=[[1, 2]],
        digests=digests_of(range(20), 20, b""),
        handle={key: D_HANDLE[key] for key in D_HANDLE.keys() - {"disaggpair", "remote_block_ids"}},
        divisible=True,
        pinned=None,
    )
    assert handle.for_lease(lease, 5700) == D_HANDLE
    assert handle.for_direct(lease) == {
        "disaggpair": {"lease": "l1", "token": "t1", "conversation": "c"}
    }


@pytest.mark.parametrize(
    ("params", "direct"),
    [
        ({"x": 1}, Direct(None, None)),
        ({"do_remote_prefill": False, "do_remote_decode": False}, Direct(None, None)),
        ({"disaggpair": {"conversation": "c"}}, Direct(None, None)),
        ({"disaggpair": {"lease": "l", "token": "t"}}, Direct("l", "t")),
    ],
)
def test_parameters_without_a_direction_are_a_turn_for_d_alone(
    params: Params, direct: Direct
) -> None:
    assert handle.decode_leg(params) == direct


def test_a_lease_of_no_conversation_says_so_by_saying_nothing() -> None:
    table = LeaseTable(
        clock=lambda: 0.0, new_token=lambda: "t1", epoch="e", ttl_s=1, claim_s=1, read_s=1
    )
    lease = table.grant(
        id="l1",
        conversation=None,
        tokens=0,
        block_ids=[[]],
        digests=digests_of([], 0, b""),
        handle={},
        divisible=True,
        pinned=None,
    )
    assert handle.for_lease(lease, 5700)["disaggpair"] == {
        "lease": "l1",
        "token": "t1",
        "port": 5700,
    }
    assert handle.for_direct(lease)["disaggpair"] == {"lease": "l1", "token": "t1"}


@pytest.mark.parametrize(
    ("given", "left"), [(None, None), ({}, {}), ("text", None), ([1], None), ({"a": 1}, {"a": 1})]
)
def test_parameters_that_are_no_object_are_taken_away(given: Any, left: Any) -> None:
    request = SimpleNamespace(kv_transfer_params=given)
    assert handle.params_of(request) == (left or None)
    assert request.kv_transfer_params == left


@pytest.mark.parametrize("key", [7, None, "c" * 257, ["c"]])
def test_a_conversation_key_is_a_bounded_string(key: object) -> None:
    with pytest.raises(HandleError, match="conversation"):
        handle.conversation_of({"disaggpair": {"conversation": key}})


def test_only_a_valid_conversation_survives_what_is_refused() -> None:
    kept = dict(D_HANDLE)
    handle.first_turn(kept)
    assert kept == {
        "do_remote_decode": True,
        "do_remote_prefill": False,
        "disaggpair": {"conversation": "c"},
    }
    lost = with_ours(P_HANDLE, conversation=7)
    handle.alone(lost)
    assert lost == {"do_remote_prefill": False, "do_remote_decode": False}


@pytest.mark.parametrize("of_prefill", [True, False])
def test_checked_parameters_name_the_leases_blocks_and_nothing_of_the_routers(
    of_prefill: bool,
) -> None:
    params = {**D_HANDLE, "_remote_blocks_processed": True, "remote_block_ids": [[9]]}
    handle.read_params(params, handle.peer_of(PEER), [[4, 5]], 32, of_prefill=of_prefill)
    assert params == {
        **PEER,
        "do_remote_decode": not of_prefill,
        "do_remote_prefill": of_prefill,
        "remote_block_ids": [[4, 5]],
        "remote_num_tokens": 32,
        "disaggpair": {"conversation": "c"},
    }
