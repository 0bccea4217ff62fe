"""How the engines of a pair differ from what `Pair` starts by default. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from disaggpair_connector import contract

RoleName = Literal["prefill", "decode"]
Connector = Literal["DisaggPair", "Nixl"]
LoadFailurePolicy = Literal["recompute", "fail"]

BLOCK_SIZE: Final = 32
NO_PREFIX_CACHING: Final = "--no-enable-prefix-caching"

_KV_ROLE: Final[Mapping[RoleName, str]] = {
    "prefill": contract.PREFILL_ROLE,
    "decode": contract.DECODE_ROLE,
}


@dataclass(frozen=True)
class RoleOptions:
    """One engine's."""

    args: tuple[str, ...] = ()
    """Further arguments of `vllm serve`."""
    environment: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Laid over `kv_connector_extra_config`."""
    load_failure_policy: LoadFailurePolicy | None = None
    """None for what the connector needs: see `load_failure_policy`."""


@dataclass(frozen=True)
class PairOptions:
    """Both engines'."""

    connector: Connector = "DisaggPair"
    # P forgets every prompt, so that what it does not compute came from D.
    prefill: RoleOptions = RoleOptions(args=(NO_PREFIX_CACHING,))
    decode: RoleOptions = RoleOptions()
    block_size: int = BLOCK_SIZE
    calm: bool = True
    """Whether idle engines are kept from spinning."""

    def of(self, role: RoleName) -> RoleOptions:
        """The options of one engine."""
        return self.prefill if role == "prefill" else self.decode


def load_failure_policy(role: RoleName, connector: Connector) -> LoadFailurePolicy:
    """What an engine does after a read that failed or was declined.

    P of ours recomputes. P of vLLM's own connector would wait for ever (0.32.0): it asks for the
    same read again and queues none.
    """
    return "recompute" if role == "prefill" and connector == "DisaggPair" else "fail"


def kv_transfer_config(
    role: RoleName,
    *,
    connector: Connector = "DisaggPair",
    policy: LoadFailurePolicy | None = None,
    **extra: Any,
) -> dict[str, Any]:
    """A KV-transfer configuration over TCP, as the operator renders it.

    Args:
        role: the side that gets it.
        connector: ours by module path, or vLLM's own by name.
        policy: None for `load_failure_policy`.
        extra: laid over `kv_connector_extra_config`.
    """
    ours = {
        "kv_connector": contract.CONNECTOR_CLASS,
        "kv_connector_module_path": contract.CONNECTOR_MODULE,
    }
    plain = {"kv_connector": contract.NIXL_CONNECTOR_CLASS}
    return {
        **(ours if connector == "DisaggPair" else plain),
        "kv_role": _KV_ROLE[role],
        "kv_load_failure_policy": policy or load_failure_policy(role, connector),
        "kv_connector_extra_config": {
            contract.EXTRA_BACKENDS: ["UCX"],
            contract.EXTRA_BIDIRECTIONAL: True,
            contract.EXTRA_RECOMPUTE_THRESHOLD: 64,
            contract.EXTRA_DECODE_TTL: 480,
            contract.EXTRA_PREFILL_LEASE: 30,
            **extra,
        },
    }
