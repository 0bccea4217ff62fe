"""What vLLM's NIXL pull connector decides from a request's transfer parameters.

One function per hook of the scheduler half (`get_num_new_matched_tokens`,
`update_state_after_alloc`, `request_finished`) and one per check of the worker half. They return
what vLLM does, its faults included; nothing is validated that vLLM does not validate.
"""

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

EXPIRY_MARGIN_S = 5.0
"""A handle with less than this left is not read."""

PEER_KEYS = ("remote_engine_id", "remote_request_id", "remote_host", "remote_port")

Params = MutableMapping[str, Any]


class EngineCrash(Exception):
    """EngineCore dies: the process answers what is in flight with 500 and exits."""


@dataclass(frozen=True)
class TransferSettings:
    """The part of the transfer configuration that decisions depend on."""

    bidirectional: bool = False
    recompute_threshold: int = 64
    decode_ttl_s: float = 480.0
    prefill_lease_s: float = 30.0
    recompute_on_failure: bool = False
    """`kv_load_failure_policy` is `recompute`; `fail` otherwise."""
    host_buffer: bool = False
    """KV goes through a host buffer (`kv_buffer_device` cpu on an accelerator)."""


class Ending(Enum):
    """How a request ended, as far as its blocks are concerned."""

    STOPPED = "stop"
    LENGTH = "length"
    ABORTED = "abort"
    REPETITION = "repetition"
    ERROR = "error"


class Queued(Enum):
    """What the scheduler half queues for the worker half."""

    READ = "read"
    NOTIFY = "notify"
    NOTHING = "nothing"


@dataclass(frozen=True)
class Finish:
    """What becomes of the blocks of a request that ended."""

    pin_s: float | None = None
    """Seconds for which the blocks are kept; None when they are free at once."""
    role: str = ""
    """`prefill` or `decode`, the shape of the parameters that are returned."""
    notify_peer: bool = False
    """The peer is told to free: this request was refused before it was scheduled."""


def _names_peer(params: Params) -> bool:
    return all(key in params for key in PEER_KEYS)


def matched_tokens(
    params: Params | None, prompt_tokens: int, computed: int, settings: TransferSettings
) -> int:
    """Tokens the connector promises to load; the request is parked when it is above 0.

    Raises:
        EngineCrash: `remote_num_tokens` cannot be compared with a number.
    """
    if params is None:
        return 0
    if params.get("do_remote_prefill"):
        count = prompt_tokens - computed
        if count > 0:
            return count
    if not (
        params.get("do_remote_decode") and params.get("remote_block_ids") and _names_peer(params)
    ):
        return 0
    held = params.get("remote_num_tokens") or 0
    if not isinstance(held, int):
        raise EngineCrash(f"remote_num_tokens is a {type(held).__name__}")
    count = min(held, prompt_tokens) - computed
    if count <= 0 or 0 < count < settings.recompute_threshold:
        return 0
    return count


def starts_tracking(params: Params | None, settings: TransferSettings) -> bool:
    """Whether the worker half will accept a deadline or a notification for this request."""
    if not params:
        return False
    return bool(
        params.get("do_remote_decode")
        or (params.get("do_remote_prefill") and settings.bidirectional)
    )


def after_allocation(params: Params | None, external: int, settings: TransferSettings) -> Queued:
    """What is queued once blocks are allocated; marks the parameters as vLLM does.

    Raises:
        EngineCrash: tokens were promised and there are no block ids.
    """
    if not params:
        return Queued.NOTHING
    if settings.host_buffer and params.get("do_remote_decode"):
        return Queued.NOTHING
    wanted = params.get("do_remote_prefill") or (
        params.get("do_remote_decode")
        and settings.bidirectional
        and not params.get("_remote_blocks_processed")
    )
    if not wanted:
        return Queued.NOTHING
    queued = Queued.NOTHING
    if params.get("remote_block_ids"):
        if _names_peer(params):
            queued = Queued.READ if external > 0 else Queued.NOTIFY
    elif external != 0:
        raise EngineCrash("a read was promised and the request has no remote_block_ids")
    params["do_remote_prefill"] = False
    params["_remote_blocks_processed"] = True
    return queued


def at_finish(
    params: Params | None, ending: Ending, num_blocks: int, settings: TransferSettings
) -> Finish:
    """Whether blocks stay pinned at the end of a request, and for whom."""
    if not params:
        return Finish()
    prefill = bool(params.get("do_remote_decode"))
    if params.get("do_remote_prefill"):
        params["do_remote_prefill"] = False
        return Finish(notify_peer=True)
    if not prefill and not settings.bidirectional:
        return Finish()
    if ending not in (Ending.STOPPED, Ending.LENGTH) or num_blocks == 0:
        return Finish()
    if prefill:
        return Finish(settings.prefill_lease_s, "prefill")
    return Finish(settings.decode_ttl_s, "decode")


def is_expired(expiry: object, clock_offset: float, now: float) -> bool:
    """Whether a handle's deadline, on its owner's clock, is past or nearly so."""
    if not isinstance(expiry, int | float):
        return False
    return now + EXPIRY_MARGIN_S >= expiry - clock_offset


def paired_blocks(local: Sequence[int], remote_groups: object) -> list[int]:
    """Remote blocks to read into the local ones: the last of the owner's list.

    Raises:
        EngineCrash: more local blocks than remote ones, or a list that is not one list per group.
    """
    if not isinstance(remote_groups, Sequence) or len(remote_groups) != 1:
        raise EngineCrash("remote_block_ids is not one list for each KV cache group")
    group = remote_groups[0]
    if not isinstance(group, Sequence) or isinstance(group, str):
        raise EngineCrash("remote_block_ids holds something else than lists")
    if len(local) > len(group):
        raise EngineCrash(f"{len(local)} local blocks for {len(group)} remote ones")
    try:
        return [int(block) for block in group[len(group) - len(local) :]]
    except (TypeError, ValueError):
        raise EngineCrash("remote_block_ids holds something else than numbers") from None
