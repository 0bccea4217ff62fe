"""What the connector reads from `kv_connector_extra_config`, checked.

vLLM looks up the keys that it knows and ignores all others, and it takes any non-empty value of
the flag for true. So a misspelt key switches a feature off, and a quoted "false" switches one on,
without a message; here both end the start.
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

_PUSH_ONLY: Final = "push_registration_timeout"


@dataclass(frozen=True)
class Settings:
    """The part of the configuration that the connector reports."""

    backends: tuple[str, ...]
    bidirectional: bool
    recompute_threshold_tokens: int
    decode_ttl_s: float
    prefill_lease_s: float


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
    )
    if settings.bidirectional and settings.recompute_threshold_tokens < 1:
        raise ConfigError(
            f"kv_connector_extra_config.{contract.EXTRA_RECOMPUTE_THRESHOLD} is "
            f"{settings.recompute_threshold_tokens} while {contract.EXTRA_BIDIRECTIONAL} is true: "
            "vLLM takes anything below 1 for bidirectional off; use 1 or more."
        )
    return settings


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

# All keys that vLLM's pull connector reads, 0.31.0 to 0.33.0: what is allowed, in words and code.
_CHECKS: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
    contract.EXTRA_BACKENDS: ('a list of NIXL backends, such as ["LIBFABRIC"]', _is_names),
    contract.EXTRA_BIDIRECTIONAL: _FLAG,
    contract.EXTRA_RECOMPUTE_THRESHOLD: ("a whole number of tokens", _is_integer),
    contract.EXTRA_DECODE_TTL: _SECONDS,
    contract.EXTRA_PREFILL_LEASE: _SECONDS,
    "engine_ttl": ("a number of seconds, 0 or less for no limit", _is_number),
    "enforce_handshake_compat": _FLAG,
    "num_threads": ("a whole number of threads", _is_integer),
}
