"""`--kv-transfer-config`: what vLLM accepts, refuses and silently ignores."""

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from disaggpair_bed.simengine.decisions import TransferSettings
from disaggpair_bed.simengine.release import Release
from disaggpair_connector import compat, contract, errors
from disaggpair_connector import settings as ours

ROLES = ("kv_producer", "kv_consumer", "kv_both")
POLICIES = ("fail", "recompute")
DEVICE = "cuda"
"""Device type of the platform that is simulated."""


class ConfigError(ValueError):
    """The engine cannot start; the text names the key."""


@dataclass(frozen=True)
class TransferConfig:
    """A transfer configuration that vLLM would start with."""

    connector: str
    role: str
    engine_id: str | None
    settings: TransferSettings
    pair: ours.Settings | None = None
    """Settings of our connector; None with vLLM's own."""

    @classmethod
    def parse(cls, value: object, release: Release) -> "TransferConfig | None":
        """Read the flag's value; None when no connector is named.

        Raises:
            ConfigError: vLLM of this release would not start.
        """
        if not isinstance(value, Mapping):
            raise ConfigError(f"must be a JSON object, not {type(value).__name__}")
        for key in value:
            if key not in release.config_fields:
                raise ConfigError(f"{key}: Unexpected keyword argument")
        connector = value.get("kv_connector")
        role = value.get("kv_role")
        if role is not None and role not in ROLES:
            raise ConfigError(f"kv_role: {role!r} is not one of {', '.join(ROLES)}")
        policy = value.get("kv_load_failure_policy", "fail")
        if policy not in POLICIES:
            raise ConfigError(
                f"kv_load_failure_policy: {policy!r} is not one of {', '.join(POLICIES)}"
            )
        if connector is None:
            return None
        if role is None:
            raise ConfigError("kv_role: must be set when kv_connector is")
        _check_connector(str(connector), value.get("kv_connector_module_path"))
        extra = value.get("kv_connector_extra_config", {})
        if not isinstance(extra, Mapping):
            raise ConfigError("kv_connector_extra_config: must be an object")
        return cls(
            str(connector),
            str(role),
            value.get("engine_id"),
            replace(
                _settings(extra, release),
                recompute_on_failure=policy == "recompute",
                host_buffer=value.get("kv_buffer_device") == "cpu",
            ),
            _pair_settings(value, extra, release),
        )


def _check_connector(connector: str, module: object) -> None:
    if connector == contract.NIXL_CONNECTOR_CLASS:
        return
    if connector != contract.CONNECTOR_CLASS:
        raise ConfigError(
            f"kv_connector: {connector!r} is not simulated; "
            f"{contract.NIXL_CONNECTOR_CLASS} and {contract.CONNECTOR_CLASS} are"
        )
    if module != contract.CONNECTOR_MODULE:
        raise ConfigError(
            f"kv_connector_module_path: {module!r} does not have {connector}; "
            f"{contract.CONNECTOR_MODULE} has"
        )
    if importlib.util.find_spec(contract.CONNECTOR_MODULE) is None:
        raise ConfigError(f"kv_connector_module_path: no module named {module!r}")


def _pair_settings(
    value: Mapping[str, Any], extra: Mapping[str, Any], release: Release
) -> ours.Settings | None:
    """Settings of our connector, which refuses more than vLLM does."""
    if value["kv_connector"] != contract.CONNECTOR_CLASS:
        return None
    if fault := compat.vllm_fault(str(release)):
        raise ConfigError(fault)
    try:
        pair = ours.parse_settings(extra)
    except errors.ConfigError as error:
        raise ConfigError(str(error)) from None
    fault = ours.engine_fault(
        pair,
        kv_role=value["kv_role"],
        kv_buffer_device=value.get("kv_buffer_device", DEVICE),
        device_type=DEVICE,
        prefill_context_parallel_size=1,
    )
    if fault is not None:
        raise ConfigError(fault)
    return pair


def _settings(extra: Mapping[str, Any], release: Release) -> TransferSettings:
    try:
        threshold = int(extra.get(contract.EXTRA_RECOMPUTE_THRESHOLD, 64))
    except (TypeError, ValueError):
        raise ConfigError(f"{contract.EXTRA_RECOMPUTE_THRESHOLD}: must be a number") from None
    decode_ttl_s, lease_s = 480.0, 480.0
    if release.has_lease_settings:
        decode_ttl_s = _seconds(extra, contract.EXTRA_DECODE_TTL, 480)
        lease_s = _seconds(extra, contract.EXTRA_PREFILL_LEASE, 30)
    return TransferSettings(
        # Tested by truth, so a JSON string such as "false" switches it on.
        bidirectional=bool(extra.get(contract.EXTRA_BIDIRECTIONAL, False)),
        recompute_threshold=threshold,
        decode_ttl_s=decode_ttl_s,
        prefill_lease_s=lease_s,
    )


def _seconds(extra: Mapping[str, Any], key: str, default: int) -> float:
    value = extra.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{key}: must be a number of seconds, not {value!r}")
    return float(value)
