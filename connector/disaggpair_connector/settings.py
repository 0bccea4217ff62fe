"""What the connector reads from `kv_connector_extra_config`, checked, alone and with the engine.

vLLM looks up the keys that it knows and ignores all others, and it takes any non-empty value of
the flag for true. So a misspelt key switches a feature off, and a quoted "false" switches one on,
without a message; here both end the start. Pure.
"""

import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from disaggpair_connector import contract
from disaggpair_connector.errors import ConfigError

DEFAULT_THRESHOLD_TOKENS: Final = 64
DEFAULT_DECODE_TTL_S: Final = 480
DEFAULT_PREFILL_LEASE_S: Final = 30
"""vLLM's own defaults, 0.31.0 to 0.33.0."""
DEFAULT_LEASE_CLAIM_S: Final = 30
DEFAULT_LEASE_READ_S: Final = 30

_PUSH_ONLY: Final = "push_registration_timeout"


@dataclass(frozen=True)
class Settings:
    """The part of the configuration that the connector uses or reports."""

    backends: tuple[str, ...]
    bidirectional: bool
    recompute_threshold_tokens: int
    decode_ttl_s: float
    prefill_lease_s: float
    lease_port: int | None = None
    """Port of the first data-parallel engine's listener; None when it is not configured."""
    lease_claim_s: float = DEFAULT_LEASE_CLAIM_S
    """Seconds from a router's claim until the lease may be claimed anew."""
    lease_read_s: float = DEFAULT_LEASE_READ_S
    """Seconds that P has for a read, from its question until the blocks have come."""

    def lease_port_from(self, side_channel_port: int) -> int:
        """The configured port, or the one beside the side channel."""
        if self.lease_port is not None:
            return self.lease_port
        return side_channel_port + contract.LEASE_PORT_OFFSET


def parse_settings(extra: Mapping[str, Any]) -> Settings:
    """The settings in a `kv_connector_extra_config`.

    Raises:
        ConfigError: a key that vLLM would ignore, or a value that it would take for another.
    """
    for key in extra:
        if key not in _CHECKS:
            raise ConfigError(_unknown(key))
    for key, (allowed, is_allowed) in _CHECKS.items():
        if key in extra and not is_allowed(extra[key]):
            raise ConfigError(f"kv_connector_extra_config.{key} is {extra[key]!r}: use {allowed}.")
    settings = Settings(
        backends=tuple(extra.get(contract.EXTRA_BACKENDS, ["UCX"])),
        bidirectional=extra.get(contract.EXTRA_BIDIRECTIONAL, False),
        recompute_threshold_tokens=extra.get(
            contract.EXTRA_RECOMPUTE_THRESHOLD, DEFAULT_THRESHOLD_TOKENS
        ),
        decode_ttl_s=extra.get(contract.EXTRA_DECODE_TTL, DEFAULT_DECODE_TTL_S),
        prefill_lease_s=extra.get(contract.EXTRA_PREFILL_LEASE, DEFAULT_PREFILL_LEASE_S),
        lease_port=extra.get(contract.EXTRA_LEASE_PORT),
        lease_claim_s=extra.get(contract.EXTRA_LEASE_CLAIM, DEFAULT_LEASE_CLAIM_S),
        lease_read_s=extra.get(contract.EXTRA_LEASE_READ, DEFAULT_LEASE_READ_S),
    )
    if settings.bidirectional and settings.recompute_threshold_tokens < 1:
        raise ConfigError(
            f"kv_connector_extra_config.{contract.EXTRA_RECOMPUTE_THRESHOLD} is "
            f"{settings.recompute_threshold_tokens} while {contract.EXTRA_BIDIRECTIONAL} is true: "
            "vLLM takes anything below 1 for bidirectional off; use 1 or more."
        )
    return settings


def engine_fault(
    settings: Settings,
    *,
    kv_role: str,
    kv_buffer_device: str,
    device_type: str,
    prefill_context_parallel_size: int,
) -> str | None:
    """One sentence on a setting of the engine that the connector does not work with, or None.

    Args:
        settings: the connector's own.
        kv_role: of the transfer configuration.
        kv_buffer_device: of the transfer configuration; vLLM's default is `device_type`.
        device_type: of the platform that the engine runs on, such as `cuda`.
        prefill_context_parallel_size: of the parallel configuration.
    """
    if kv_buffer_device == "cpu" and device_type != "cpu":
        return (
            f"kv_buffer_device is 'cpu' on {device_type}: vLLM then queues no read of D's blocks, "
            f"and P waits for ever; leave it out or use {device_type!r}."
        )
    if kv_role not in (contract.PREFILL_ROLE, contract.DECODE_ROLE):
        return (
            f"kv_role is {kv_role!r}: DisaggPairConnector must know which side an engine is on; "
            f"use {contract.PREFILL_ROLE} or {contract.DECODE_ROLE}."
        )
    if settings.bidirectional and prefill_context_parallel_size > 1:
        return (
            f"--prefill-context-parallel-size is {prefill_context_parallel_size} while "
            f"{contract.EXTRA_BIDIRECTIONAL} is true: vLLM reads D's blocks only with 1."
        )
    return None


def _unknown(key: str) -> str:
    if key == _PUSH_ONLY:
        return (
            f"kv_connector_extra_config has {key}, a setting of push mode: DisaggPairConnector "
            "pulls, and push mode cannot be bidirectional; remove it."
        )
    near = difflib.get_close_matches(key, _CHECKS, n=1, cutoff=0.0)
    return (
        f"kv_connector_extra_config has {key!r}, which vLLM would ignore without a message: did "
        f"you mean {near[0]!r}? Known keys: {', '.join(sorted(_CHECKS))}."
    )


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_port(value: object) -> bool:
    return _is_integer(value) and 1 <= value <= 65_535  # type: ignore[operator]  # a number


def _is_seconds(value: object) -> bool:
    return _is_number(value) and value > 0  # type: ignore[operator]  # a number


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_names(value: object) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(name, str) and name for name in value)
    )


_SECONDS: Final = ("a number of seconds above 0", _is_seconds)
_FLAG: Final = ("true or false", lambda value: isinstance(value, bool))

# All keys that vLLM's pull connector reads, 0.31.0 to 0.33.0, and ours: what is allowed, in words
# and code.
_CHECKS: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
    contract.EXTRA_BACKENDS: ('a list of NIXL backends, such as ["LIBFABRIC"]', _is_names),
    contract.EXTRA_BIDIRECTIONAL: _FLAG,
    contract.EXTRA_RECOMPUTE_THRESHOLD: ("a whole number of tokens", _is_integer),
    contract.EXTRA_DECODE_TTL: _SECONDS,
    contract.EXTRA_PREFILL_LEASE: _SECONDS,
    "engine_ttl": ("a number of seconds, 0 or less for no limit", _is_number),
    "enforce_handshake_compat": _FLAG,
    "num_threads": ("a whole number of threads", _is_integer),
    contract.EXTRA_LEASE_PORT: ("a port, 1 to 65535", _is_port),
    contract.EXTRA_LEASE_CLAIM: _SECONDS,
    contract.EXTRA_LEASE_READ: _SECONDS,
}
