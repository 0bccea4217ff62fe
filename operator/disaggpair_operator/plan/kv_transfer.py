"""The KV-transfer configuration of both roles, from the same values.

Only `kv_role`, and with our connector what happens after a failed read, differs between the roles:
vLLM compares neither the flag, nor the threshold, nor the TTLs, and a pair in which they differ
hangs or misses without a message.
"""

import json
from typing import Any, Final, Literal

from disaggpair_connector import contract
from disaggpair_operator.api.v1alpha1 import Spec
from disaggpair_operator.plan.releases import Release

RoleName = Literal["prefill", "decode"]

SIDE_CHANNEL_PORT: Final = 5600
LEASE_PORT: Final = SIDE_CHANNEL_PORT + contract.LEASE_PORT_OFFSET
"""Where an engine answers for its leases. Rendered, because the container's ports name it too."""

_BACKENDS: Final = {"EFA": ["LIBFABRIC"], "TCP": ["UCX"]}


def has_leases(spec: Spec) -> bool:
    """Whether each role gives leases on its blocks, which the other asks for before it reads."""
    return spec.engine.connector == "DisaggPair"


def verifies_reads(spec: Spec) -> bool:
    """Whether P compares tokens with D before it reads D's blocks, which D then keeps as leases."""
    return has_leases(spec) and spec.kv_transfer.bidirectional


def kv_transfer_config(spec: Spec, release: Release, role: RoleName) -> dict[str, Any]:
    """The value of `--kv-transfer-config` for one role.

    `engine_id` is left to vLLM, which makes a new one at every start: a pinned id hides a restart
    from the peer, which then reads stale addresses. `kv_buffer_device` is left to the platform.
    """
    config: dict[str, Any] = {"kv_connector": contract.NIXL_CONNECTOR_CLASS}
    if has_leases(spec):
        config["kv_connector"] = contract.CONNECTOR_CLASS
        config["kv_connector_module_path"] = contract.CONNECTOR_MODULE
    config["kv_role"] = _kv_role(release, role)
    config["kv_load_failure_policy"] = _failure_policy(spec, role)
    config["kv_connector_extra_config"] = _extra_config(spec, release)
    return config


def _failure_policy(spec: Spec, role: RoleName) -> str:
    """What an engine does after a failed read.

    With vLLM's own connector `recompute` leaves a P with a cold cache waiting for ever (0.32). Ours
    lets P compute; D fails, since its turn then begins anew at P, which is made for prompts.
    """
    ours = spec.engine.connector == "DisaggPair"
    return "recompute" if ours and role == "prefill" else "fail"


def _kv_role(release: Release, role: RoleName) -> str:
    if not release.split_roles:
        return contract.LEGACY_ROLE
    return contract.PREFILL_ROLE if role == "prefill" else contract.DECODE_ROLE


def _extra_config(spec: Spec, release: Release) -> dict[str, Any]:
    kv = spec.kv_transfer
    extra: dict[str, Any] = {
        contract.EXTRA_BACKENDS: _BACKENDS[spec.fabric.type],
        contract.EXTRA_BIDIRECTIONAL: kv.bidirectional,
        contract.EXTRA_RECOMPUTE_THRESHOLD: kv.recompute_threshold_tokens,
    }
    if release.lease_keys:
        extra[contract.EXTRA_DECODE_TTL] = kv.decode_ttl_seconds
        extra[contract.EXTRA_PREFILL_LEASE] = kv.prefill_lease_seconds
    if has_leases(spec):
        extra[contract.EXTRA_LEASE_PORT] = LEASE_PORT
    return extra


def as_argument(config: dict[str, Any]) -> str:
    """The configuration as one command-line value, the same text for the same values."""
    return json.dumps(config, separators=(",", ":"))
