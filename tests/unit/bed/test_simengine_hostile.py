"""Parameters of every wrong kind, sent to simulated cores with our connector."""

from array import array
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from disaggpair_bed.simengine.localpair import LocalPair, Params, with_ours, words
from disaggpair_bed.simengine.twolegs import TURN_1

Change = Callable[[Params], Params]

VALUES: tuple[object, ...] = (None, True, -1, 0, 1.5, 10**30, "", "x", [], [[]], {}, [1])
KEYS = (
    "do_remote_decode",
    "do_remote_prefill",
    "remote_block_ids",
    "remote_engine_id",
    "remote_request_id",
    "remote_host",
    "remote_port",
    "remote_num_tokens",
    "remote_blocks_expiry_time",
    "tp_size",
    "disaggpair",
)


def put(key: str, value: object) -> Change:
    return lambda params: {**params, key: value}


def put_ours(key: str, value: object) -> Change:
    return lambda params: with_ours(params, **{key: value})


def leave_out(key: str) -> Change:
    return lambda params: {name: value for name, value in params.items() if name != key}


def leave_out_ours(key: str) -> Change:
    return lambda params: {**params, "disaggpair": leave_out(key)(params["disaggpair"])}


def one_by_one(our_keys: Sequence[str]) -> dict[str, Change]:
    """Each key left out, and with values of every kind."""
    return {
        **{f"no {key}": leave_out(key) for key in KEYS},
        **{f"no {key} of ours": leave_out_ours(key) for key in our_keys},
        **{f"{key} {value!r}": put(key, value) for key in KEYS for value in VALUES},
        **{f"our {key} {value!r}": put_ours(key, value) for key in our_keys for value in VALUES},
    }


HANDLES: dict[str, Change] = {
    **one_by_one(("lease", "token", "port", "conversation")),
    "other blocks": put("remote_block_ids", [list(range(1, 80))]),
    "one block": put("remote_block_ids", [[1]]),
    "two groups": put("remote_block_ids", [[1], [2]]),
    "another request": put("remote_request_id", "request-1"),
    "another engine": put("remote_engine_id", "P"),
    "another host": put("remote_host", "P"),
    "another port": put("remote_port", 1),
    "many tokens": put("remote_num_tokens", 10**6),
    "a guessed token": put_ours("token", "guess"),
    "an unknown lease": put_ours("lease", "0" * 16),
    "another lease port": put_ours("port", 1),
    "nothing": lambda _: {},
}

OFFERS: dict[str, Change] = {
    **one_by_one(("digest", "tokens", "block_size", "issued", "lease_s", "conversation")),
    "other blocks": put("remote_block_ids", [list(range(90, 128))]),
    "fewer blocks": put("remote_block_ids", [[1]]),
    "text as blocks": put("remote_block_ids", [["a"] * 38]),
    "another request": put("remote_request_id", "request-2"),
    "another engine": put("remote_engine_id", "D"),
    "another digest": put_ours("digest", "0" * 32),
    "half the block size": put_ours("block_size", 8),
    "a later time": put_ours("issued", 10**9),
    "a longer lease": put_ours("lease_s", 10**9),
    "nothing": lambda _: {},
}


def answer(pair: LocalPair, prompt: "array[int]", params: Params) -> list[int]:
    """What D says to a D leg."""
    return pair.net.ask(pair.d, prompt, params or None, max_tokens=2).tokens


@pytest.mark.parametrize("name", HANDLES)
def test_a_hostile_handle_harms_nobody_and_the_answer_is_right(name: str) -> None:
    pair = LocalPair()
    pair.first_turn(start=50_000)
    following, handle = pair.first_turn()
    expected = pair.right(following, max_tokens=2)
    first = pair.net.ask(pair.p, following, HANDLES[name](handle), max_tokens=1)
    assert first.tokens == expected[:1]
    assert answer(pair, following, first.params or {}) == expected
    assert pair.is_clean()
    pair.net.pass_time(pair.ttl_s)
    assert pair.d.pool.usage == 0


@pytest.mark.parametrize("name", OFFERS)
def test_a_hostile_offer_harms_nobody_and_the_answer_is_right(name: str) -> None:
    pair = LocalPair()
    prompt = words(600)
    pair.net.ask(pair.p, words(600, 50_000), TURN_1, max_tokens=1)
    first = pair.net.ask(pair.p, prompt, TURN_1, max_tokens=1)
    assert first.params is not None
    expected = pair.right(prompt, max_tokens=2)
    assert answer(pair, prompt, OFFERS[name](first.params)) == expected
    assert pair.is_clean()


def test_a_handle_on_a_d_leg_and_an_offer_on_a_p_leg_are_not_read() -> None:
    pair = LocalPair()
    following, handle = pair.first_turn()
    expected = pair.right(following, max_tokens=2)
    assert answer(pair, following, handle) == expected
    offer = pair.net.ask(pair.p, following, TURN_1, max_tokens=1).params
    assert pair.net.ask(pair.p, following, offer, max_tokens=1).tokens == expected[:1]
    assert pair.d.stats.refused_reads == pair.p.stats.refused_reads == {"role": 1}
    assert pair.is_clean()


@pytest.mark.parametrize("changes", [HANDLES, OFFERS])
@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_request_that_the_api_refuses_with_hostile_parameters_harms_nobody(
    role: str, changes: dict[str, Change]
) -> None:
    pair = LocalPair()
    _, handle = pair.first_turn()
    offer: Any = pair.net.ask(pair.p, words(600), TURN_1, max_tokens=1).params
    core = pair.p if role == "prefill" else pair.d
    for change in changes.values():
        core.refuse(change(dict(handle if changes is HANDLES else offer)))
    assert pair.is_clean()
