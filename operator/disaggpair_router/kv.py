"""The shape of the KV transfer parameters on each leg, and what is accepted as a handle. Pure.

Facts of vLLM behind the tables (0.21 to 0.33): a handle that is malformed can end the engine's
core process or park a request for ever, and an object of parameters that lacks
`do_remote_prefill` makes D pin blocks that nothing frees. Hence a turn that goes to one engine
alone carries no parameters at all, and whatever comes from an engine is checked before it is
stored or sent.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import orjson

from disaggpair_connector.contract import KV_TRANSFER_PARAMS, PAIR_PARAMS

Api = Literal["chat", "completions", "responses", "messages"]
Json = dict[str, Any]

TRANSFER_KEYS: Final = frozenset({KV_TRANSFER_PARAMS, "ec_transfer_params"})
"""Keys through which a request steers an engine's transfers; never accepted from a client."""

_NOT_THE_CLIENTS: Final = TRANSFER_KEYS | {"request_id"}
"""A request id is part of what frees blocks, and in some APIs the body's comes before headers."""
_NESTED: Final = ("vllm_xargs", "extra_body", "extra_args")
"""Objects of a request body that vLLM or a client library merges into the request itself."""

FIRST_TURN: Final[Mapping[str, Any]] = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}
"""P's parameters when there is nothing to read from D."""

PREFILL_SETS: Final[Mapping[Api, Mapping[str, Any]]] = {
    "chat": {"stream": False, "max_tokens": 1, "max_completion_tokens": 1},
    "completions": {"stream": False, "max_tokens": 1},
    "responses": {"stream": False, "max_output_tokens": 1},
    "messages": {"stream": False, "max_tokens": 1},
}
"""What the P leg overrides. In chat `max_completion_tokens` wins over `max_tokens`."""

GRAMMAR: Final = (
    "structured_outputs",
    "structural_tag",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "guided_decoding_backend",
    "guided_whitespace_pattern",
)
"""Fields that constrain how the answer is sampled and reach neither prompt nor template."""

PREFILL_DROPS: Final = frozenset(
    {
        "stream_options",  # 400 without a stream
        "min_tokens",  # 400 above max_tokens
        "n",
        "best_of",
        "use_beam_search",
        "logprobs",
        "top_logprobs",
        "logprob_token_ids",  # 400 without logprobs
        "ignore_eos",
        "stop",
        "stop_token_ids",
        "include_stop_str_in_output",
        # A grammar costs compile time and may end the one token at once. response_format stays:
        # since 0.33 it reaches the chat template.
        *GRAMMAR,
    }
)
"""Fields that concern the answer only. What feeds the prompt or its block hashes stays."""

_ALSO_DROPS: Final[Mapping[Api, frozenset[str]]] = {
    "chat": frozenset(),
    "completions": frozenset(),
    "responses": frozenset({"include", "max_tool_calls"}),
    "messages": frozenset({"stop_sequences"}),
}
"""The same of one API."""


@dataclass(frozen=True, slots=True)
class Handle:
    """D's promise: where the blocks of a finished turn are. Usable once."""

    raw: bytes
    """The parameters as JSON, forwarded as they came: an unknown key may be a later check."""
    engine: str
    """`remote_engine_id`; changes when the engine restarts unless somebody pinned it."""
    tokens: int
    """Tokens whose KV D holds."""

    @property
    def pair_params(self) -> Mapping[str, Any]:
        """Our connector's part of the parameters; empty without it."""
        ours = orjson.loads(self.raw).get(PAIR_PARAMS)
        return ours if isinstance(ours, dict) else {}

    def for_prefill(self) -> orjson.Fragment:
        """The parameters of a P leg that reads from D."""
        return orjson.Fragment(self.raw)

    def for_release(self) -> Json:
        """Parameters with which P tells D to free the blocks, without reading any."""
        params: Json = orjson.loads(self.raw)
        return {**params, "remote_num_tokens": 0}


class InvalidParams(ValueError):
    """An engine's parameters that must not be sent to another one."""


def without_transfer_keys(body: Mapping[str, Any]) -> Json:
    """The client's body without anything that vLLM would take as transfer parameters."""
    kept = {key: value for key, value in body.items() if key not in _NOT_THE_CLIENTS}
    for key in _NESTED:
        if key in kept:
            kept[key] = _scrubbed(kept[key])
    return kept


def prefill_drops(api: Api) -> frozenset[str]:
    """The fields that stay away from a P leg."""
    return PREFILL_DROPS | _ALSO_DROPS[api]


def prefill_body(api: Api, body: Mapping[str, Any], params: object = None) -> Json:
    """The P leg's body: the client's with minimal edits, one token, no stream.

    `params` is a handle's fragment; without it the turn is an ordinary first one.
    """
    drops = prefill_drops(api)
    kept = {key: value for key, value in body.items() if key not in drops}
    return {
        **kept,
        **PREFILL_SETS[api],
        KV_TRANSFER_PARAMS: FIRST_TURN if params is None else params,
    }


def decode_body(body: Mapping[str, Any], params: Json | None, *, whole: bool = False) -> Json:
    """The D leg's body: the client's, with P's parameters if there are any.

    `whole` asks for the answer in one piece, for engines that give no handle in a stream.
    """
    sent = dict(body)
    if whole:
        sent["stream"] = False
        sent.pop("stream_options", None)
    if params is not None:
        sent[KV_TRANSFER_PARAMS] = params
    return sent


def release_body(model: str, handle: Handle) -> Json:
    """The smallest request that makes P tell D to free a handle's blocks."""
    return {
        **({"model": model} if model else {}),
        "prompt": [1],
        "max_tokens": 1,
        "stream": False,
        KV_TRANSFER_PARAMS: handle.for_release(),
    }


def checked_handle(value: object) -> Handle:
    """D's parameters as a handle; InvalidParams names the field that is missing or wrong."""
    params = _checked(value, remote_prefill=False)
    tokens = params.get("remote_num_tokens")
    if not _is_count(tokens, 1):
        raise InvalidParams("remote_num_tokens is not a positive integer")
    expiry = params.get("remote_blocks_expiry_time")
    if expiry is not None and type(expiry) not in (int, float):
        raise InvalidParams("remote_blocks_expiry_time is not a number")
    try:
        raw = orjson.dumps(params)
    except orjson.JSONEncodeError:
        raise InvalidParams("the parameters are nested too deeply") from None
    return Handle(raw, params["remote_engine_id"], params["remote_num_tokens"])


def checked_prefill_params(value: object) -> Json:
    """P's parameters, to be sent to D as they are; InvalidParams when D could not use them."""
    return _checked(value, remote_prefill=True)


def _checked(value: object, *, remote_prefill: bool) -> Json:
    if not isinstance(value, dict):
        raise InvalidParams("the parameters are not an object")
    if value.get("do_remote_prefill") is not remote_prefill:
        raise InvalidParams(f"do_remote_prefill is not {str(remote_prefill).lower()}")
    if bool(value.get("do_remote_decode")) is remote_prefill:
        raise InvalidParams(f"do_remote_decode is not {str(not remote_prefill).lower()}")
    for key in ("remote_engine_id", "remote_request_id", "remote_host"):
        if not isinstance(value.get(key), str) or not value[key]:
            raise InvalidParams(f"{key} is not a string")
    port = value.get("remote_port")
    if not _is_count(port, 1) or value["remote_port"] > 65_535:
        raise InvalidParams("remote_port is not a port")
    for key in ("tp_size", "dcp_size", "pp_size"):
        if key in value and not _is_count(value[key], 1):
            raise InvalidParams(f"{key} is not a positive integer")
    if not _is_block_list(value.get("remote_block_ids")):
        raise InvalidParams("remote_block_ids is not a list of lists of block numbers")
    return value


def _is_count(value: object, least: int) -> bool:
    # bool is an int; True as a count is a mistake of the sender.
    return type(value) is int and value >= least


def _is_block_list(value: object) -> bool:
    if not isinstance(value, list) or not any(value):
        return False
    # Thousands in a long prompt, so not one by one.
    return all(
        isinstance(group, list) and set(map(type, group)) <= {int} and min(group, default=0) >= 0
        for group in value
    )


def _scrubbed(value: object) -> object:
    if isinstance(value, dict):
        return {key: _scrubbed(item) for key, item in value.items() if key not in TRANSFER_KEYS}
    if isinstance(value, list):
        return [_scrubbed(item) for item in value]
    return value
