"""Every name of vLLM that the connector uses; no other module imports vllm.

vLLM does not promise to keep these names. Its release is checked before they are imported, so that
the message names the release and not the first name that it lacks. `tests/contract` compares what
stands here with the classes of installed engines.
"""

from collections.abc import Callable, Mapping
from typing import Any

import vllm

from disaggpair_connector import compat, contract

compat.require_engine(vllm.__version__)

# ruff: noqa: E402 - the release is checked before its names are imported
from vllm import envs
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.connector import (
    NixlBaseConnector,
    NixlPullConnector,
)
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_scheduler import (
    NixlPullConnectorScheduler,
)
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_worker import NixlPullConnectorWorker
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.stats import (
    NixlKVConnectorStats,
    NixlPromMetrics,
)
from vllm.logger import init_logger
from vllm.platforms import current_platform
from vllm.v1.kv_cache_interface import AttentionSpec

compat.require_base(NixlPullConnector)

__all__ = [
    "VLLM_VERSION",
    "KVConnectorRole",
    "NixlBaseConnector",
    "NixlKVConnectorStats",
    "NixlPromMetrics",
    "NixlPullConnector",
    "NixlPullConnectorScheduler",
    "NixlPullConnectorWorker",
    "data_parallel_index",
    "device_type",
    "engine_logger",
    "extra_config",
    "is_by_place",
    "is_divisible",
    "let_frees_wait",
    "name_checks_fault",
    "side_channel_port",
]

VLLM_VERSION: str = vllm.__version__


def engine_logger() -> Any:
    """A logger below vLLM's own, which has its format and its level."""
    return init_logger("vllm.disaggpair")


def extra_config(vllm_config: Any) -> Mapping[str, Any]:
    """The `kv_connector_extra_config` of an engine."""
    extra: Mapping[str, Any] = vllm_config.kv_transfer_config.kv_connector_extra_config
    return extra


def name_checks_fault(vllm_config: Any) -> str | None:
    """One sentence on a setting that vLLM handles for a connector named NixlConnector only.

    vLLM 0.31.0 to 0.33.0 compares the *name* in the configuration: under another one it neither
    refuses the first setting nor adjusts the cache layout that the second one needs.
    """
    if vllm_config.aux_output_config.enable_return_routed_experts:
        return (
            "--enable-return-routed-experts does not work with NIXL transfers: remove it, since "
            "the routed experts of transferred tokens are not known to the reader."
        )
    if (size := vllm_config.parallel_config.decode_context_parallel_size) > 1:
        return (
            f"--decode-context-parallel-size is {size} and DisaggPairConnector supports 1: vLLM "
            "lays the cache out for transfers only under the connector Nixl."
        )
    return None


def device_type() -> str:
    """The platform's name of what the engine runs on, such as `cuda`."""
    return str(current_platform.device_type)


def data_parallel_index(vllm_config: Any) -> int:
    """Which of the data-parallel engines this is, from 0."""
    return int(vllm_config.parallel_config.data_parallel_index)


def let_frees_wait(vllm_config: Any) -> Callable[[], None]:
    """Let vLLM's scheduler free blocks only when no step that it gave out can still write them.

    With asynchronous scheduling such a step can run when the next request's read fills the same
    blocks, and spoil what was read. vLLM 0.31 to 0.33 lets frees wait on engines whose role reads,
    and looks at the role right after it has made the connector; P reads, too.

    Returns:
        Gives the role back, once vLLM has looked.
    """
    transfer = vllm_config.kv_transfer_config
    role = transfer.kv_role
    if role == contract.PREFILL_ROLE:
        transfer.kv_role = contract.LEGACY_ROLE

    def give_back() -> None:
        transfer.kv_role = role

    return give_back


def side_channel_port() -> int:
    """The port of the NIXL handshake of the first data-parallel engine."""
    return int(envs.VLLM_NIXL_SIDE_CHANNEL_PORT)


def is_divisible(scheduler: Any) -> bool:
    """Whether a leading part of a sequence is a leading part of the blocks of every group.

    So with full attention only. A window's blocks are its last ones, a state's one stands for the
    whole sequence.

    Args:
        scheduler: vLLM's NIXL scheduler half.
    """
    if scheduler._is_hma_required or scheduler._has_mamba:
        return False
    config = scheduler.kv_cache_config
    groups = getattr(config, "transfer_groups", config.kv_cache_groups)
    return all(group.kv_cache_spec.block_size == scheduler.block_size for group in groups)


def is_by_place(scheduler: Any) -> bool:
    """Whether block i of every group is that of the same tokens, or of none that are needed.

    So with attention of any kind: a window's list has empty blocks in front. A state's has not.

    Args:
        scheduler: vLLM's NIXL scheduler half.
    """
    specs = [group.kv_cache_spec for group in scheduler.kv_cache_config.kv_cache_groups]
    return all(
        isinstance(spec, AttentionSpec) and spec.block_size == scheduler.block_size
        for spec in specs
    )
