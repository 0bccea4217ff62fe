"""What of `kv_transfer_params` is taken, and what it is taken for."""

from typing import Any

import pytest

from disaggpair_connector import handle
from disaggpair_connector.digest import digests_of
from disaggpair_connector.handle import Direct, HandleError

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
P_OFFER: Params = {
    **PEER,
    "do_remote_decode": False,
    "do_remote_prefill": True,
    "remote_block_ids": [[1, 2]],
    "disaggpair": {
        "digest": "d",
        "tokens": 20,
        "block_size": 16,
        "issued": 1.5,
        "lease_s": 30,
    },
}


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


def test_an_offer_is_taken_whole() -> None:
    offer = handle.decode_leg(P_OFFER)
    assert isinstance(offer, handle.Offer)
    assert (offer.tokens, offer.block_size, offer.digest, offer.issued) == (20, 16, "d", 1.5)
    assert offer.peer.params() == PEER


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({**P_OFFER, "do_remote_decode": True}, "role"),
        ({**P_OFFER, "disaggpair": None}, "no_offer"),
        ({**P_OFFER, "remote_block_ids": None}, "malformed"),
        ({**P_OFFER, "remote_block_ids": []}, "malformed"),
        ({**P_OFFER, "remote_block_ids": [[]]}, "malformed"),
        ({**P_OFFER, "remote_block_ids": [1, 2]}, "malformed"),
        ({**P_OFFER, "remote_block_ids": [["1"]]}, "malformed"),
        ({**P_OFFER, "remote_block_ids": [[-1]]}, "malformed"),
        ({**P_OFFER, "remote_engine_id": None}, "malformed"),
        ({**P_OFFER, "remote_request_id": 3}, "malformed"),
        ({**P_OFFER, "remote_port": 0}, "malformed"),
        ({**P_OFFER, "tp_size": 0}, "malformed"),
        ({**P_OFFER, "remote_registration_generation": -1}, "malformed"),
        (with_ours(P_OFFER, tokens=20.0), "malformed"),
        (with_ours(P_OFFER, issued="now"), "malformed"),
        (with_ours(P_OFFER, issued=float("nan")), "malformed"),
        (with_ours(P_OFFER, lease_s=-1), "malformed"),
    ],
)
def test_a_d_leg_that_cannot_be_used_is_named_by_its_fault(params: Params, reason: str) -> None:
    with pytest.raises(HandleError) as caught:
        handle.decode_leg(params)
    assert caught.value.reason == reason


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
    lost = with_ours(P_OFFER, conversation=7)
    handle.alone(lost)
    assert lost == {"do_remote_prefill": False, "do_remote_decode": False}


def test_checked_parameters_name_the_leases_blocks_and_nothing_of_the_routers() -> None:
    params = {**D_HANDLE, "_remote_blocks_processed": True, "remote_block_ids": [[9]]}
    handle.read_params(params, handle.peer_of(PEER), [[4, 5]], 32)
    assert params == {
        **PEER,
        "do_remote_decode": True,
        "do_remote_prefill": False,
        "remote_block_ids": [[4, 5]],
        "remote_num_tokens": 32,
        "disaggpair": {"conversation": "c"},
    }
    offer = {**P_OFFER, "_remote_blocks_processed": True, "unknown": 1}
    checked = handle.decode_leg(offer)
    assert isinstance(checked, handle.Offer)
    handle.offered(offer, checked)
    assert offer == {
        **PEER,
        "do_remote_decode": False,
        "do_remote_prefill": True,
        "remote_block_ids": [[1, 2]],
        "remote_num_tokens": 20,
    }


def test_an_offers_digest_is_bound_to_tokens_blocks_and_request() -> None:
    held = digests_of([1, 2, 3], 3, b"")
    peer = handle.peer_of(PEER)
    base = handle.offer_digest(held, peer, [[1]], 16)
    others = [
        handle.offer_digest(digests_of([1, 2, 4], 3, b""), peer, [[1]], 16),
        handle.offer_digest(digests_of([1, 2, 3], 3, b"salt"), peer, [[1]], 16),
        handle.offer_digest(held, peer, [[2]], 16),
        handle.offer_digest(held, peer, [[1]], 32),
        handle.offer_digest(held, handle.peer_of({**PEER, "remote_request_id": "r"}), [[1]], 16),
    ]
    assert len({base, *others}) == 6
    assert base == handle.offer_digest(held, peer, [[1]], 16)
