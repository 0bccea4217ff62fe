"""What the connector relies on in vLLM; the one place where it is declared.

A signature is written as Python writes it, without types; a default is `...`. How a method is used
decides what may change in it:

    overrides   vLLM calls ours: its parameters are exactly these
    calls       we call vLLM's: a call with these parameters goes on working
    reads       we stand in between: parameters of these names are there, more may come

An attribute has the annotation that we rely on, or None where any will do. A return annotation
counts where one is given. `tests/contract/test_connector_releases.py` compares this with the
connector's own sources and with every release that it accepts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from disaggpair_bed.releases import facts, nixl_facts
from disaggpair_bed.releases.facts import MANAGER, POOL, REQUEST, Fact
from disaggpair_bed.releases.nixl_facts import (
    HANDSHAKE,
    PULL_CONNECTOR,
    PULL_SCHEDULER,
    PULL_WORKER,
    V1,
)


@dataclass(frozen=True)
class Relied:
    """Names of one class, `module:Class`."""

    name: str
    overrides: Mapping[str, str] = field(default_factory=dict)
    calls: Mapping[str, str] = field(default_factory=dict)
    reads: Mapping[str, Sequence[str]] = field(default_factory=dict)
    attributes: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def methods(self) -> list[str]:
        """All methods that are named."""
        return sorted({*self.overrides, *self.calls, *self.reads})


def _any(*names: str) -> dict[str, str | None]:
    return dict.fromkeys(names)


_HALF: Final = "(self, vllm_config, engine_id, kv_cache_config)"
_FINISHED: Final = "tuple[bool, dict[str, Any] | None]"
_STATS: Final = f"{V1}.nixl.stats"
_PROM: Final = "(self, vllm_config, metric_types, labelnames, per_engine_labelvalues)"

CLASSES: Final = (
    Relied(
        PULL_CONNECTOR,
        overrides={
            "__init__": "(self, vllm_config, role, kv_cache_config)",
            "bind_kv_cache_manager": "(self, kv_cache_manager)",
            "get_kv_connector_stats": "(self)",
            "build_kv_connector_stats": "(cls, data=...)",
            "build_prom_metrics": _PROM.replace("self", "cls"),
            "requires_piecewise_for_cudagraph": "(cls, extra_config)",
            "shutdown": "(self)",
        },
        attributes=_any("connector_scheduler", "connector_worker", "engine_id"),
    ),
    Relied(
        f"{V1}.nixl.connector:NixlBaseConnector",
        calls={"__init__": "(self, vllm_config, role, kv_cache_config)"},
    ),
    Relied(
        PULL_SCHEDULER,
        overrides={
            "__init__": _HALF,
            "on_new_request": "(self, request)",
            "get_num_new_matched_tokens": "(self, request, num_computed_tokens)",
            "update_state_after_alloc": "(self, request, blocks, num_external_tokens)",
            "request_finished": f"(self, request, block_ids) -> {_FINISHED}",
            "build_connector_meta": "(self, scheduler_output)",
            "update_connector_output": "(self, connector_output)",
            "shutdown": "(self)",
        },
        calls={
            "get_exchange_clipped_blocks": "(self, block_ids)",
            "_stop_heartbeat": "(self, req_id)",
        },
        attributes={
            "_reqs_need_send": "dict[ReqId, float]",
            "_reqs_in_batch": "set[ReqId]",
            "_reqs_not_processed": "set[ReqId]",
            "_kv_lease_duration": "int",
            "_last_heartbeat_time": "float",
            "kv_recompute_threshold": "int",
            **_any(
                "is_bidirectional_kv_xfer_enabled",
                "side_channel_host",
                "block_size",
                "kv_cache_config",
                "_is_hma_required",
                "_has_mamba",
            ),
        },
    ),
    Relied(
        PULL_WORKER,
        overrides={
            "__init__": _HALF,
            "register_kv_caches": "(self, kv_caches)",
            "start_load_kv": "(self, metadata)",
            "_read_blocks_for_req": "(self, req_id, meta)",
            "_get_new_notifs": "(self) -> set[str]",
            "_pop_done_transfers": "(self, transfers) -> tuple[set[str], set[str]]",
        },
        calls={
            "_handle_failed_transfer": (
                "(self, req_id, handle, failed_req_ids=..., record_failed_transfer=...) -> bool"
            ),
        },
        attributes={
            "_recv_failures": "set[ReqId]",
            "_handshake_lock": None,
            "_remote_agents": None,
            "_engine_by_address": "dict[tuple[str, int], EngineId]",
            "_reqs_to_process": "set[ReqId]",
            "consumer_notification_counts_by_req": None,
            "expected_consumer_notifications_by_req": None,
            "_recving_metadata": "dict[ReqId, ReqMeta]",
            "_reqs_to_send": "dict[ReqId, float]",
            "compat_hash": "str | None",
            "xfer_handshake_metadata": "NixlHandshakePayload | None",
            "xfer_stats": None,
        },
    ),
    Relied(HANDSHAKE, attributes={"compatibility_hash": "str"}),
    Relied(
        f"{_STATS}:NixlKVConnectorStats",
        overrides={"reset": "(self)", "is_empty": "(self) -> bool"},
        attributes={"data": "dict[str, list[float | int]]"},
    ),
    Relied(
        f"{_STATS}:NixlPromMetrics",
        overrides={
            "__init__": _PROM,
            "observe": "(self, transfer_stats_data, engine_idx=...)",
        },
        attributes=_any("_gauge_cls", "_counter_cls", "_histogram_cls", "per_engine_labelvalues"),
    ),
    Relied(
        MANAGER,
        calls={"get_blocks": "(self, request_id)"},
        reads={
            "allocate_slots": (
                "request",
                "num_new_tokens",
                "num_new_computed_tokens",
                "new_computed_blocks",
                "num_external_computed_tokens",
                "full_sequence_must_fit",
                "reserved_blocks",
            ),
            "reset_prefix_cache": (),
        },
        attributes=_any("block_pool"),
    ),
    Relied(
        "vllm.v1.core.kv_cache_manager:KVCacheBlocks",
        attributes={"blocks": "tuple[Sequence[KVCacheBlock], ...]"},
    ),
    Relied(
        POOL,
        calls={
            "touch": "(self, blocks)",
            "free_blocks": "(self, ordered_blocks)",
            "get_num_free_blocks": "(self) -> int",
        },
        attributes=_any("num_gpu_blocks"),
    ),
    Relied(
        "vllm.v1.core.kv_cache_utils:KVCacheBlock",
        attributes={"is_null": "bool", "block_id": "int"},
    ),
    Relied(
        REQUEST,
        attributes={
            "kv_transfer_params": "dict[str, Any] | None",
            "num_tokens": "int",
            **_any(
                "request_id",
                "prompt_token_ids",
                "prompt_embeds",
                "all_token_ids",
                "num_prompt_tokens",
                "num_computed_tokens",
                "num_in_flight_tokens",
                "lora_request",
                "cache_salt",
                "mm_features",
            ),
        },
    ),
    Relied("vllm.lora.request:LoRARequest", attributes={"lora_name": "str", "lora_path": "str"}),
    Relied(
        "vllm.multimodal.inputs:MultiModalFeatureSpec",
        attributes={"identifier": "str", "mm_position": "PlaceholderRange"},
    ),
    Relied("vllm.multimodal.inputs:PlaceholderRange", attributes={"offset": "int"}),
    Relied(
        "vllm.v1.outputs:KVConnectorOutput",
        attributes={
            "finished_sending": "set[str] | None",
            "finished_recving": "set[str] | None",
            "failed_recving": "set[str]",
        },
    ),
    Relied(
        "vllm.v1.kv_cache_interface:KVCacheConfig",
        attributes=_any("kv_cache_groups", "transfer_groups"),
    ),
    Relied(
        "vllm.v1.kv_cache_interface:KVCacheGroupSpec",
        attributes={"kv_cache_spec": "KVCacheSpec"},
    ),
    Relied("vllm.v1.kv_cache_interface:KVCacheSpec", attributes={"block_size": "int"}),
    Relied(f"{V1}.base:KVConnectorRole", attributes=_any("WORKER")),
    Relied(
        "vllm.config:VllmConfig",
        attributes=_any("kv_transfer_config", "parallel_config", "aux_output_config"),
    ),
    Relied(
        "vllm.config:KVTransferConfig",
        attributes=_any("kv_connector_extra_config", "kv_role", "kv_buffer_device"),
    ),
    Relied(
        "vllm.config:ParallelConfig",
        attributes={
            "decode_context_parallel_size": "int",
            "prefill_context_parallel_size": "int",
            "data_parallel_index": "int",
        },
    ),
    Relied(
        "vllm.config.aux_output:AuxOutputConfig",
        attributes={"enable_return_routed_experts": "bool"},
    ),
)

FACTS: Final[tuple[Fact, ...]] = (
    facts.has_the_names_outside_of_classes,
    nixl_facts.makes_its_halves_and_nothing_else,
    facts.binds_the_cache_manager,
    facts.looks_at_the_role_in_between,
    facts.tells_of_new_requests,
    facts.takes_parameters_of_the_sampling,
    facts.skips_a_request_that_waits,
    facts.tells_after_it_allocated,
    facts.builds_metadata_last,
    facts.shows_outputs_before_it_frees,
    facts.takes_statistics_of_the_scheduler_half,
    facts.finishes_before_it_frees,
    facts.finishes_with_every_group,
    facts.steps_for_requests_only,
    facts.allocates_through_the_manager,
    facts.refuses_for_lack_of_blocks_only,
    facts.refuses_before_it_takes,
    facts.counts_references,
    facts.resets_through_the_manager,
    nixl_facts.expects_what_was_in_a_batch,
    nixl_facts.sets_timers_for_what_was_in_a_batch,
    nixl_facts.sees_reads_end_in_one_place,
    nixl_facts.sees_what_was_sent_in_one_place,
    nixl_facts.queues_one_read_for_a_request,
    nixl_facts.beats_for_what_will_be_read,
    nixl_facts.renews_by_two_thirds,
    nixl_facts.lets_metadata_carry_more,
)
