"""What stands in `kv_transfer_params`, checked. Pure.

vLLM takes these parameters as they come: a wrong type or a missing key ends the engine's core
process or parks the request for ever (facts behind each check: vLLM 0.31.0 to 0.33.0, cases F, G,
M and Q of `tests/e2e/test_connector_cases.py`). So nothing of them reaches vLLM that was not
checked here, and the parts that would be trusted (which blocks, how many tokens) come from the
peer's lease and not from the parameters.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from disaggpair_connector import contract
from disaggpair_connector.lease import Lease

Params = dict[str, Any]

Refusal = Literal[
    "malformed",
    "no_lease",
    "role",
    "off",
    "unreachable",
    "timeout",
    "unknown",
    "taken",
    "token",
    "busy",
    "tokens",
    "late",
    "short",
    "failed",
]
"""Why tokens that a peer was said to hold were not read; label of a counter.

`malformed` to `off` are said of the parameters, `unreachable` to `busy` by the lease's owner or on
the way to it, `tokens` when the tokens differ, `late` when the request waited too long for blocks,
`short` when less than the threshold would be read, `failed` when a read was begun and did not end
well.
"""

MAX_CONVERSATION: Final = 256
"""Characters of a conversation key; more is cut off the wire as malformed."""

MAX_RANKS: Final = 4096
"""Of a peer in one direction; vLLM makes a list of them before it asks the first."""

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

    @property
    def is_renewable(self) -> bool:
        """Whether vLLM's heartbeats can name the request.

        They put ids between commas, of which an id has some if its client chose it so, and go to
        peers whose `tp_size` is known (0.31 to 0.33).
        """
        return "," not in self.request_id and "tp_size" in self.layout


@dataclass(frozen=True, slots=True)
class LeaseHandle:
    """A handle of the other role: whom to ask. What is read, and where, the answer says."""

    host: str
    port: int
    lease: str
    token: str
    is_release: bool
    """Whether the router only gives it up, by a count of 0 tokens."""


@dataclass(frozen=True, slots=True)
class Direct:
    """Parameters of a turn sent to D alone, whose claimed lease keeps the history."""

    lease: str | None
    token: str | None


def params_of(request: Any) -> Params | None:
    """The parameters of a request of vLLM's, or None for none that mean anything.

    A client's `vllm_xargs` can hold a text or a list under their name, which vLLM takes for an
    object and ends over; such are taken away.
    """
    params = request.kv_transfer_params
    if not isinstance(params, dict):
        request.kv_transfer_params = params = None
    return params or None


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
    if "lease" not in _ours(params) and not params.get("remote_block_ids"):
        return None
    return _lease_handle(params)


def decode_leg(params: Params) -> LeaseHandle | Direct:
    """P's handle in the parameters of a D leg, or a turn for D alone.

    Raises:
        HandleError: the parameters name blocks and cannot be used.
    """
    if params.get("do_remote_decode"):
        raise HandleError("role", "do_remote_decode is set on a decode engine")
    ours = _ours(params)
    if params.get("do_remote_prefill"):
        return _lease_handle(params)
    if ours.get("lease") is None:
        return Direct(None, None)
    return Direct(_text(ours, "lease"), _text(ours, "token"))


def for_lease(lease: Lease, lease_port: int) -> Params:
    """The parameters of an engine for a lease, in the shape that the other role wants."""
    ours: Params = {"lease": lease.id, "token": lease.token, "port": lease_port}
    if lease.conversation:
        ours["conversation"] = lease.conversation
    return {
        **lease.handle,
        # For routers that look; the reader takes the blocks from the lease itself.
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


def read_params(
    params: Params, peer: Peer, block_ids: list[list[int]], tokens: int, *, of_prefill: bool
) -> None:
    """Let the parameters name the blocks that a lease gave, P's or D's."""
    first_turn(params)
    params.update(do_remote_prefill=of_prefill, do_remote_decode=not of_prefill)
    params.update(peer.params())
    params["remote_block_ids"] = block_ids
    params["remote_num_tokens"] = tokens


def alone(params: Params) -> None:
    """Leave the parameters of a turn whose prompt D computes itself."""
    ours = _conversation_only(params)
    params.clear()
    params.update(do_remote_prefill=False, do_remote_decode=False, **ours)


def _conversation_only(params: Mapping[str, Any]) -> Params:
    try:
        conversation = conversation_of(params)
    except HandleError:
        return {}
    return {contract.PAIR_PARAMS: {"conversation": conversation}} if conversation else {}


def _lease_handle(params: Params) -> LeaseHandle:
    ours = _ours(params)
    if "lease" not in ours:
        raise HandleError("no_lease", "the parameters name blocks and no lease")
    return LeaseHandle(
        host=_text(params, "remote_host"),
        port=_number(ours, "port", 1, 65_535),
        lease=_text(ours, "lease"),
        token=_text(ours, "token"),
        is_release=params.get("remote_num_tokens") == 0,
    )


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
        key: _number(params, key, 1, MAX_RANKS)
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
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a pair, which JSON can hold and vLLM cannot send
        raise HandleError("malformed", f"{key} is not text") from None
    return value


def _number(values: Mapping[str, Any], key: str, least: int, most: int = 2**31 - 1) -> int:
    value = values.get(key)
    # bool is an int; True as a count is a mistake of the sender.
    if type(value) is not int or not least <= value <= most:
        raise HandleError("malformed", f"{key} is not a whole number from {least} to {most}")
    return value
