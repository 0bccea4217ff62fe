"""How a toy engine is set up, in our words and in vLLM's."""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from vllm.config import (
    CacheConfig,
    DeviceConfig,
    KVTransferConfig,
    ModelConfig,
    SchedulerConfig,
    SpeculativeConfig,
    VllmConfig,
)
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    SlidingWindowSpec,
)

Role = Literal["prefill", "decode"]

_ROLES = {"prefill": "kv_producer", "decode": "kv_consumer"}


@dataclass(frozen=True)
class Shape:
    """How an engine is set up."""

    blocks: int = 40
    block_size: int = 4
    max_model_len: int = 128
    batch_tokens: int = 64
    seqs: int = 8
    window: int | None = None
    """Tokens that every second layer looks back; None for full attention alone."""
    is_async: bool = False
    draft_tokens: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)
    """For `kv_connector_extra_config`."""
    policy: str = "recompute"
    threshold: int = 4
    bidirectional: bool = True

    def but(self, **changes: Any) -> "Shape":
        """The shape with changes."""
        return replace(self, **changes)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def engine_config(role: Role, shape: Shape, lease_port: int) -> VllmConfig:
    """vLLM's configuration of an engine."""
    model = ModelConfig(
        model=os.environ["TOYPAIR_MODEL"],
        skip_tokenizer_init=True,
        dtype="bfloat16",
        max_model_len=shape.max_model_len,
    )
    speculative = None
    if shape.draft_tokens:
        speculative = SpeculativeConfig(
            method="ngram", num_speculative_tokens=shape.draft_tokens, prompt_lookup_max=2
        )
    config = VllmConfig(
        model_config=model,
        cache_config=CacheConfig(block_size=shape.block_size, enable_prefix_caching=True),
        scheduler_config=SchedulerConfig(
            max_num_seqs=shape.seqs,
            max_num_batched_tokens=shape.batch_tokens,
            max_model_len=shape.max_model_len,
            is_encoder_decoder=False,
            enable_chunked_prefill=True,
            disable_hybrid_kv_cache_manager=False,
        ),
        kv_transfer_config=KVTransferConfig(
            kv_connector="DisaggPairConnector",
            kv_connector_module_path="disaggpair_connector.connector",
            kv_role=_ROLES[role],
            kv_load_failure_policy=shape.policy,
            kv_connector_extra_config={
                "bidirectional_kv_xfer": shape.bidirectional,
                "kv_recompute_threshold": shape.threshold,
                "lease_port": lease_port,
                **shape.extra,
            },
        ),
        speculative_config=speculative,
        device_config=DeviceConfig("cpu"),
    )
    # What the platform has adjusted: it prefers larger blocks, and one step at a time.
    config.cache_config.block_size = shape.block_size
    config.scheduler_config.async_scheduling = shape.is_async
    config.cache_config.kv_cache_layout = "LBHNC"
    return config


def cache_config(config: VllmConfig, shape: Shape) -> KVCacheConfig:
    """One group of layers with full attention, and one with a window if there is one."""
    model = config.model_config
    terms: dict[str, Any] = {
        "block_size": shape.block_size,
        "num_kv_heads": model.get_total_num_kv_heads(),
        "head_size": model.get_head_size(),
        "dtype": model.dtype,
    }
    specs: list[Any] = [FullAttentionSpec(**terms)]
    if shape.window is not None:
        specs.append(SlidingWindowSpec(sliding_window=shape.window, **terms))
    names = [f"model.layers.{number}.self_attn.attn" for number in range(len(specs))]
    return KVCacheConfig(
        num_blocks=shape.blocks,
        kv_cache_tensors=[],  # the toy memory is allocated elsewhere
        kv_cache_groups=[
            KVCacheGroupSpec([name], spec) for name, spec in zip(names, specs, strict=True)
        ],
        kv_cache_layout="LBHNC",
    )
