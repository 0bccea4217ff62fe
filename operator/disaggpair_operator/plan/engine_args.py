"""The command line and the environment of one engine: the only place that renders them."""

from typing import Any

from disaggpair_connector import contract
from disaggpair_operator.api.v1alpha1 import EnvVar, Role, Spec
from disaggpair_operator.model import Bind, Owner
from disaggpair_operator.plan.keys import engine_keys, variable
from disaggpair_operator.plan.kv_transfer import (
    LEASE_PORT,
    SIDE_CHANNEL_PORT,
    RoleName,
    as_argument,
    has_leases,
    kv_transfer_config,
)
from disaggpair_operator.plan.releases import Release

HTTP_PORT = 8000
MODEL_CACHE_PATH = "/var/cache/huggingface"


def role_spec(spec: Spec, role: RoleName) -> Role:
    """The part of the spec that belongs to one role."""
    return spec.prefill if role == "prefill" else spec.decode


def shared_arguments(spec: Spec) -> list[str]:
    """Arguments after the model that are the same on both roles, by construction."""
    args = ["--served-model-name", spec.model.served_name or spec.model.name]
    if spec.model.revision:
        args += ["--revision", spec.model.revision]
    args += ["--block-size", str(spec.kv_transfer.block_size)]
    return [*args, *spec.engine.args]


def engine_arguments(spec: Spec, release: Release, role: RoleName, bind: Bind) -> list[str]:
    """Arguments after `vllm serve` for one role.

    With bind PodIP the engine listens on the pod's address alone; else on all interfaces, which is
    vLLM's default.
    """
    part = role_spec(spec, role)
    return [
        spec.model.name,
        *_usage(release, role),
        *shared_arguments(spec),
        *(["--host", "$(POD_IP)"] if bind == "PodIP" else []),
        "--port",
        str(HTTP_PORT),
        "--tensor-parallel-size",
        str(part.tensor_parallel_size),
        "--enable-prefix-caching" if part.prefix_caching else "--no-enable-prefix-caching",
        "--shutdown-timeout",
        str(spec.rollout.drain_seconds),
        "--kv-transfer-config",
        as_argument(kv_transfer_config(spec, release, role)),
        *_step(spec, role),
        *part.args,
    ]


def _usage(release: Release, role: RoleName) -> list[str]:
    """What lets an engine tell how many tokens of a prompt came from a cache.

    The line of each turn and the guard want it. It comes before the arguments of users, who may
    take it back. It is not part of the revision: engines with and without it understand each other.
    """
    tells = role == "prefill" or release.tells_cached_at_p
    return ["--enable-prompt-tokens-details"] if tells else []


def _step(spec: Spec, role: RoleName) -> list[str]:
    """D's step is what bounds the gaps of its answers beside the prompts that it computes."""
    direct = spec.kv_transfer.direct_turns
    if direct is None or role != "decode":
        return []
    return ["--max-num-batched-tokens", str(direct.step_tokens)]


def engine_ports(spec: Spec) -> dict[str, int]:
    """Ports that an engine listens on, by name; NIXL's transports add some of their own."""
    ports = {"http": HTTP_PORT, "side-channel": SIDE_CHANNEL_PORT}
    if has_leases(spec):
        ports["leases"] = LEASE_PORT
    return ports


def engine_environment(owner: Owner, spec: Spec, role: RoleName) -> list[dict[str, Any]]:
    """Environment of one role; the user's variables come last and cannot replace ours."""
    pod_ip = {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}
    env: list[dict[str, Any]] = [
        {"name": "POD_IP", "valueFrom": pod_ip},
        {"name": "VLLM_HOST_IP", "valueFrom": pod_ip},
        # The default is localhost, which peers on another host cannot reach.
        {"name": contract.SIDE_CHANNEL_HOST_ENV, "valueFrom": pod_ip},
        {"name": contract.SIDE_CHANNEL_PORT_ENV, "value": str(SIDE_CHANNEL_PORT)},
        *engine_keys(owner, spec),
    ]
    if spec.model.cache:
        env.append({"name": "HF_HOME", "value": MODEL_CACHE_PATH})
    if spec.model.token_secret_ref:
        env.append(variable("HF_TOKEN", spec.model.token_secret_ref))
    env += _fabric_environment(spec)
    taken = {entry["name"] for entry in env}
    users = {entry.name: entry for entry in [*spec.engine.env, *role_spec(spec, role).env]}
    return [*env, *(_env_var(entry) for name, entry in users.items() if name not in taken)]


def _fabric_environment(spec: Spec) -> list[dict[str, Any]]:
    if spec.fabric.type != "EFA":
        return []
    env = [
        # Without it libfabric falls back to TCP without a message.
        {"name": "FI_PROVIDER", "value": "efa"},
        {"name": "FI_EFA_USE_DEVICE_RDMA", "value": "1"},
        # Its shared-memory path was reported to corrupt GPU buffers under load.
        {"name": "FI_EFA_ENABLE_SHM_TRANSFER", "value": "0"},
    ]
    if spec.fabric.hugepages:
        env.append({"name": "FI_EFA_USE_HUGE_PAGE", "value": "1"})
    return env


def _env_var(entry: EnvVar) -> dict[str, Any]:
    if entry.secret_key_ref is None:
        return {"name": entry.name, "value": entry.value}
    return variable(entry.name, entry.secret_key_ref)
