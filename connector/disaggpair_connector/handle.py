"""What stands in `kv_transfer_params`, checked. Pure.

vLLM takes these parameters as they come: a wrong type or a missing key ends the engine's core
process or parks the request for ever (facts behind each check: vLLM 0.31.0 to 0.33.0, cases F, G,
M and Q of `tests/e2e/test_connector_cases.py`). So nothing of them reaches vLLM that was not
checked here, and the parts that would be trusted (which blocks, how many tokens) come from the
peer's lease and not from the parameters.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from disaggpair_connector import contract
from disaggpair_connector.digest import Digests
from disaggpair_connector.lease import Lease

Params = dict[str, Any]

Refusal = Literal[
    "malformed",
    "no_lease",
    "no_offer",
    "role",
    "off",
    "prompt",
    "used",
    "late",
    "tokens",
    "unreachable",
    "timeout",
    "unknown",
    "taken",
    "token",
    "busy",
    "short",
    "failed",
]
"""Why tokens that a peer was said to hold were not read; label of a counter.

`malformed` to `prompt` are said of the parameters, `used` and `late` of an offer, `tokens` when
the tokens differ, `unreachable` to `busy` by the lease's owner or on the way to it, `short` when
less than the threshold would be read, `failed` when a read was begun and did not end well.
"""

MAX_CONVERSATION: Final = 256
"""Characters of a conversation key; more is cut off the wire as malformed."""

_FIRST_TURN: Final = {"do_remote_decode": True, "do_remote_prefill": False}


class HandleError(ValueError):
    """Parameters that are not used."""

    def __init__(self, reason: Refusal, message: str) -> None:
        super().__init__(message)
        self.reason: Refusal = reason


@dataclass(frozen=True, slots=True)
class Peer:
    """Where a peer's blocks are, in vLLM's terms."""

    engine_id: str
    request_id: str
    host: str
    port: int
    layout: Mapping[str, int]
    """`tp_size` and the like, as far as they were given."""

    def params(self) -> Params:
        """The keys that vLLM reads."""
        return {
            "remote_engine_id": self.engine_id,
            "remote_request_id": self.request_id,
            "remote_host": self.host,
            "remote_port": self.port,
            **self.layout,
        }


@dataclass(frozen=True, slots=True)
class LeaseHandle:
    """D's handle on a P leg: whom to ask. What is read, and where, the answer says."""

    host: str
    port: int
    lease: str
    token: str
    is_release: bool
    """Whether the router only gives it up, by a count of 0 tokens."""


@dataclass(frozen=True, slots=True)
class Offer:
    """P's parameters on a D leg: blocks of exactly this prompt."""

    peer: Peer
    block_ids: list[list[int]]
    tokens: int
    block_size: int
    digest: str
    """Of the prompt's tokens and of everything above: `offer_digest`."""
    issued: float
    """Unix seconds."""
    lease_s: float


@dataclass(frozen=True, slots=True)
class Direct:
    """Parameters of a turn sent to D alone, whose claimed lease keeps the history."""

    lease: str | None
    token: str | None


def conversation_of(params: Mapping[str, Any] | None) -> str:
    """The router's conversation key, or an empty string.

    Raises:
        HandleError: it is not a string or too long.
    """
    ours = _ours(params or {})
    key = ours.get("conversation", "")
    if not isinstance(key, str) or len(key) > MAX_CONVERSATION:
        raise HandleError(
            "malformed",
            f"{contract.PAIR_PARAMS}.conversation is not a string of at most "
            f"{MAX_CONVERSATION} characters",
        )
    return key


def prefill_leg(params: Params) -> LeaseHandle | None:
    """D's handle in the parameters of a P leg; None for a first turn.

    Raises:
        HandleError: the parameters name blocks and cannot be used.
    """
    if params.get("do_remote_prefill"):
        raise HandleError("role", "do_remote_prefill is set on a prefill engine")
    if not params.get("do_remote_decode"):
        raise HandleError("role", "do_remote_decode is not set on a prefill engine")
    ours = _ours(params)
    if "lease" not in ours:
        if params.get("remote_block_ids"):
            raise HandleError("no_lease", "the parameters name blocks and no lease")
        return None
    return LeaseHandle(
        host=_text(params, "remote_host"),
        port=_number(ours, "port", 1, 65_535),
        lease=_text(ours, "lease"),
        token=_text(ours, "token"),
        is_release=params.get("remote_num_tokens") == 0,
    )


def decode_leg(params: Params) -> Offer | Direct:
    """P's offer in the parameters of a D leg, or a turn for D alone.

    Raises:
        HandleError: the parameters name blocks and cannot be used.
    """
    if params.get("do_remote_decode"):
        raise HandleError("role", "do_remote_decode is set on a decode engine")
    ours = _ours(params)
    if not params.get("do_remote_prefill"):
        if ours.get("lease") is None:
            return Direct(None, None)
        return Direct(_text(ours, "lease"), _text(ours, "token"))
    if "digest" not in ours:
        raise HandleError("no_offer", "the parameters name blocks and carry no digest")
    return Offer(
        peer=peer_of(params),
        block_ids=_blocks(params.get("remote_block_ids")),
        tokens=_number(ours, "tokens", 1),
        block_size=_number(ours, "block_size", 1),
        digest=_text(ours, "digest"),
        issued=_seconds(ours, "issued"),
        lease_s=_seconds(ours, "lease_s"),
    )


def offer_digest(held: Digests, peer: Peer, block_ids: list[list[int]], block_size: int) -> str:
    """What binds the tokens of an offer to the blocks that are said to hold them."""
    named = json.dumps(
        [held.tokens, peer.engine_id, peer.request_id, block_ids, block_size],
        separators=(",", ":"),
    )
    hashed = hashlib.sha256(named.encode())
    hashed.update(held.chunks)
    hashed.update(held.tail)
    return hashed.hexdigest()[:32]


def for_lease(lease: Lease, lease_port: int) -> Params:
    """The parameters that D gives for a lease, in the shape that P wants."""
    ours: Params = {"lease": lease.id, "token": lease.token, "port": lease_port}
    if lease.conversation:
        ours["conversation"] = lease.conversation
    return {
        **lease.handle,
        # For routers that look; P takes the blocks from the lease itself.
        "remote_block_ids": [group.tolist() for group in lease.block_ids],
        contract.PAIR_PARAMS: ours,
    }


def for_direct(lease: Lease) -> Params:
    """The parameters of a turn to D alone that continues a claimed lease."""
    ours: Params = {"lease": lease.id, "token": lease.token}
    if lease.conversation:
        ours["conversation"] = lease.conversation
    return {contract.PAIR_PARAMS: ours}


def first_turn(params: Params) -> None:
    """Leave nothing in the parameters but what a first turn has."""
    ours = _conversation_only(params)
    params.clear()
    params.update(_FIRST_TURN, **ours)


def read_params(params: Params, peer: Peer, block_ids: list[list[int]], tokens: int) -> None:
    """Let the parameters name the blocks that a lease gave."""
    first_turn(params)
    params.update(peer.params())
    params["remote_block_ids"] = block_ids
    params["remote_num_tokens"] = tokens


def alone(params: Params) -> None:
    """Leave the parameters of a turn whose prompt D computes itself."""
    ours = _conversation_only(params)
    params.clear()
    params.update(do_remote_prefill=False, do_remote_decode=False, **ours)


def offered(params: Params, offer: Offer) -> None:
    """Let the parameters say what was checked and nothing else."""
    alone(params)
    params.update(do_remote_prefill=True, do_remote_decode=False)
    params.update(offer.peer.params())
    params["remote_block_ids"] = offer.block_ids
    params["remote_num_tokens"] = offer.tokens


def _conversation_only(params: Mapping[str, Any]) -> Params:
    try:
        conversation = conversation_of(params)
    except HandleError:
        return {}
    return {contract.PAIR_PARAMS: {"conversation": conversation}} if conversation else {}


def _ours(params: Mapping[str, Any]) -> Mapping[str, Any]:
    ours = params.get(contract.PAIR_PARAMS)
    if ours is None:
        return {}
    if not isinstance(ours, dict):
        raise HandleError("malformed", f"{contract.PAIR_PARAMS} is not an object")
    return ours


def peer_of(params: Mapping[str, Any]) -> Peer:
    """The engine and the request that some parameters name.

    Raises:
        HandleError: a key is missing or wrong.
    """
    layout = {
        key: _number(params, key, 1)
        for key in ("tp_size", "dcp_size", "pp_size")
        if params.get(key) is not None
    }
    generation = "remote_registration_generation"  # vLLM 0.33: grows when a peer wakes up
    if params.get(generation) is not None:
        layout[generation] = _number(params, generation, 0)
    return Peer(
        engine_id=_text(params, "remote_engine_id"),
        request_id=_text(params, "remote_request_id"),
        host=_text(params, "remote_host"),
        port=_number(params, "remote_port", 1, 65_535),
        layout=layout,
    )


def _text(values: Mapping[str, Any], key: str) -> str:
    value = values.get(key)
    if not isinstance(value, str) or not 0 < len(value) <= 1024:
        raise HandleError("malformed", f"{key} is not a string of 1 to 1024 characters")
    return value


def _number(values: Mapping[str, Any], key: str, least: int, most: int = 2**31 - 1) -> int:
    value = values.get(key)
    # bool is an int; True as a count is a mistake of the sender.
    if type(value) is not int or not least <= value <= most:
        raise HandleError("malformed", f"{key} is not a whole number from {least} to {most}")
    return value


def _seconds(values: Mapping[str, Any], key: str) -> float:
    value = values.get(key)
    if type(value) not in (int, float) or not math.isfinite(value) or value < 0:  # type: ignore[arg-type,operator]
        raise HandleError("malformed", f"{key} is not a number of seconds")
    return float(value)  # type: ignore[arg-type]  # a number


def _blocks(value: object) -> list[list[int]]:
    if not isinstance(value, list) or not value or not any(value):
        raise HandleError("malformed", "remote_block_ids is not a list of lists of blocks")
    for group in value:
        if not isinstance(group, list) or not all(
            type(block) is int and 0 <= block < 2**31 for block in group
        ):
            raise HandleError("malformed", "remote_block_ids is not a list of lists of blocks")
    return value
