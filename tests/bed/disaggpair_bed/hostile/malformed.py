"""Transfer parameters that no engine gives out. Pure.

A case takes what an engine gave out and returns what is sent in its place. The first two tables
are inputs of which vLLM's own connector is known to hang or to die; `fuzzed` draws others.
"""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final

from disaggpair_bed.hostile.turns import Change

Params = Mapping[str, Any]

OURS: Final = "disaggpair"


def _with(**values: Any) -> Change:
    return lambda params: {**params, **values}


def _without(*names: str) -> Change:
    return lambda params: {key: value for key, value in params.items() if key not in names}


def _blocks(change: Callable[[list[int]], Any]) -> Change:
    """A case that changes the first group of the block list."""

    def changed(params: Params) -> Any:
        groups = params.get("remote_block_ids") or [[]]
        return {**params, "remote_block_ids": change(list(groups[0]))}

    return changed


def _ours(change: Callable[[Params], Any]) -> Change:
    """A case that changes what our connector added; without it, it sends only that."""

    def changed(params: Params) -> Any:
        own = params.get(OURS)
        return {**params, OURS: change(own if isinstance(own, Mapping) else {})}

    return changed


_LEASES: Final[Mapping[str, Change]] = {
    "ours as text": _ours(lambda own: "lease"),
    "ours as a list": _ours(lambda own: [own]),
    "ours empty": _ours(lambda own: {}),
    "without ours": _without(OURS),
    "another lease": _ours(lambda own: {**own, "lease": "0123456789abcdef"}),
    "lease as a number": _ours(lambda own: {**own, "lease": 7}),
    "lease as a path": _ours(lambda own: {**own, "lease": "../leases?x=1#\r\nHost: a"}),
    "lease too long": _ours(lambda own: {**own, "lease": "x" * 100_000}),
    "another token": _ours(lambda own: {**own, "token": "guess"}),
    "token as null": _ours(lambda own: {**own, "token": None}),
    "token not ASCII": _ours(lambda own: {**own, "token": "тайна"}),
    "a lease port where nobody listens": _ours(lambda own: {**own, "port": 9}),
    "the lease port of an API": _ours(lambda own: {**own, "port": 8000}),
    "the lease port of a side channel": _ours(lambda own: {**own, "port": 5600}),
    "lease port as text": _ours(lambda own: {**own, "port": "5700"}),
    "lease port out of range": _ours(lambda own: {**own, "port": 700_000}),
    "conversation as a number": _ours(lambda own: {**own, "conversation": 12}),
    "conversation too long": _ours(lambda own: {**own, "conversation": "c" * 5000}),
}
"""Changes of what our connector added, on either way; vLLM's own ignores it."""

TO_PREFILL: Final[Mapping[str, Change]] = {
    "blocks as a flat list": _blocks(lambda ids: ids),
    "blocks as strings": _blocks(lambda ids: [[str(number) for number in ids]]),
    "fewer blocks than tokens": _blocks(lambda ids: [ids[: len(ids) // 3]]),
    "more blocks than tokens": _blocks(lambda ids: [[*ids, *ids]]),
    "blocks in reverse": _blocks(lambda ids: [ids[::-1]]),
    "blocks that D does not have": _blocks(lambda ids: [[10**6 + number for number in ids]]),
    "negative blocks": _blocks(lambda ids: [[-number for number in ids]]),
    "no blocks": _with(remote_block_ids=None),
    "empty blocks": _with(remote_block_ids=[[]]),
    "two groups of blocks": _blocks(lambda ids: [ids, ids]),
    "tokens as a fraction": lambda params: {
        **params,
        "remote_num_tokens": params.get("remote_num_tokens", 0) + 0.5,
    },
    "tokens as text": lambda params: {
        **params,
        "remote_num_tokens": str(params.get("remote_num_tokens")),
    },
    "too many tokens": _with(remote_num_tokens=100_000),
    "negative tokens": _with(remote_num_tokens=-64),
    "no tokens": _without("remote_num_tokens"),
    "no engine": _without("remote_engine_id"),
    "no request": _without("remote_request_id"),
    "another engine": _with(remote_engine_id="00000000-0000-0000-0000-000000000000"),
    "another request": _with(remote_request_id="cmpl-none-0"),
    "no host": _without("remote_host"),
    "a host that is not there": _with(remote_host="127.0.0.9"),
    "no port": _without("remote_port"),
    "a port where nobody listens": _with(remote_port=9),
    "port as text": _with(remote_port="5600"),
    "host as a number": _with(remote_host=7),
    "engine as a list": _with(remote_engine_id=["a"]),
    "request as null": _with(remote_request_id=None),
    "no layout": _without("tp_size", "dcp_size", "pp_size"),
    "layout as text": _with(tp_size="one"),
    "another layout": _with(tp_size=4),
    "expiry as text": _with(remote_blocks_expiry_time="soon"),
    "expiry never": _with(remote_blocks_expiry_time=None),
    "both directions": _with(do_remote_prefill=True, do_remote_decode=True),
    "neither direction": _with(do_remote_prefill=False, do_remote_decode=False),
    "marked as processed": _with(_remote_blocks_processed=True),
    "marked as truncated": _with(_p_side_truncated=True),
    "another generation": _with(remote_registration_generation=7),
    "push mode": _with(transfer_mode="push"),
    "prompt ids as text": _with(prompt_token_ids="abc"),
    "not an object": lambda params: "params",
    "a list": lambda params: [dict(params)],
    "only ours": lambda params: {OURS: params.get(OURS)},
    **_LEASES,
}
"""Changes of D's handle on its way to P."""

TO_DECODE: Final[Mapping[str, Change]] = {
    "no blocks": _with(remote_block_ids=None),
    "empty blocks": _with(remote_block_ids=[[]]),
    "blocks as a flat list": _blocks(lambda ids: ids),
    "fewer blocks than tokens": _blocks(lambda ids: [ids[: len(ids) // 3]]),
    "more blocks than tokens": _blocks(lambda ids: [[*ids, *ids]]),
    "blocks in reverse": _blocks(lambda ids: [ids[::-1]]),
    "blocks as strings": _blocks(lambda ids: [[str(number) for number in ids]]),
    "blocks that P does not have": _blocks(lambda ids: [[10**6 + number for number in ids]]),
    "no engine": _without("remote_engine_id"),
    "another engine": _with(remote_engine_id="00000000-0000-0000-0000-000000000000"),
    "no request": _without("remote_request_id"),
    "another request": _with(remote_request_id="cmpl-none-0"),
    "no host": _without("remote_host"),
    "a host that is not there": _with(remote_host="127.0.0.9"),
    "no port": _without("remote_port"),
    "a port where nobody listens": _with(remote_port=9),
    "tokens as text": _with(remote_num_tokens="all"),
    "too many tokens": _with(remote_num_tokens=100_000),
    "no tokens": _without("remote_num_tokens"),
    "layout as text": _with(tp_size="one"),
    "both directions": _with(do_remote_prefill=True, do_remote_decode=True),
    "neither direction": _with(do_remote_prefill=False, do_remote_decode=False),
    "not an object": lambda params: "params",
    "empty": lambda params: {},
    "only the flag": lambda params: {"do_remote_prefill": True},
    **_LEASES,
}
"""Changes of P's answer on its way to D."""

_ODD: Final[Sequence[Any]] = (
    *(None, True, False, 0, 1, -1, 63, 2**31, 2**63, 1.5, -0.0, 1e308),
    *("", "x", "0", "127.0.0.1", "é\u0000", "9" * 400),
    *([], [[]], [1], [[1]], [[1.5]], [[None]], [[[1]]], {}, {"a": {"b": [1]}}),
)


def fuzzed(rng: Random, params: Params) -> Any:
    """One to three values of the parameters, at any depth, are others or gone."""
    changed: dict[str, Any] = dict(params)
    for _ in range(rng.randint(1, 3)):
        name = rng.choice([*changed, "do_remote_prefill", "extra", OURS])
        inner = changed.get(name)
        if isinstance(inner, dict) and inner and rng.random() < 0.8:
            changed[name] = {**inner, rng.choice(list(inner)): rng.choice(_ODD)}
        elif rng.random() < 0.2:
            changed.pop(name, None)
        else:
            changed[name] = rng.choice(_ODD)
    return changed
