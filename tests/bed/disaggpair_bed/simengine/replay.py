"""Runs cases on vLLM's own classes: a program for the interpreter of a vLLM 0.32 environment.

    python replay.py < cases.json > results.json

Standard input is a list of cases, standard output the list of their results. A case is an object
with a `hook`, which names a function here, and that function's arguments. vLLM's methods run as
they are; only what surrounds them (configuration, request, block lists, NIXL itself) is replaced.
Imports nothing of this repository, which the other interpreter does not have.
"""

import json
import queue
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

Json = dict[str, Any]

BLOCK_SIZE = 16


def _scheduler(case: Mapping[str, Any]) -> Any:
    from vllm.config import KVTransferConfig
    from vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_scheduler import (
        NixlPullConnectorScheduler,
    )

    group = SimpleNamespace(kv_cache_spec=SimpleNamespace(prefix_replay_tokens=0))
    config = SimpleNamespace(
        parallel_config=SimpleNamespace(
            tensor_parallel_size=1,
            decode_context_parallel_size=1,
            pipeline_parallel_size=1,
            data_parallel_index=0,
        ),
        cache_config=SimpleNamespace(block_size=BLOCK_SIZE, mamba_cache_mode="none"),
        scheduler_config=SimpleNamespace(disable_hybrid_kv_cache_manager=True),
        kv_transfer_config=KVTransferConfig(
            kv_connector="NixlConnector",
            kv_role="kv_both",
            kv_connector_extra_config=case["extra"],
        ),
        num_prefill_lookahead_tokens=0,
    )
    cache = SimpleNamespace(
        transfer_groups=[group],
        kv_cache_groups=[group],
        has_mamba_layers=False,
        select_transfer_block_ids=lambda blocks: blocks,
    )
    scheduler = NixlPullConnectorScheduler(config, "engine", cache)
    scheduler.use_host_buffer = case.get("host_buffer", False)
    return scheduler


def _blocks(cached: int, fresh: int) -> Any:
    group = [
        SimpleNamespace(block_hash=b"hash", is_null=False, block_id=1 + index)
        for index in range(cached)
    ] + [
        SimpleNamespace(block_hash=None, is_null=False, block_id=1 + cached + index)
        for index in range(fresh)
    ]
    unhashed = [block.block_id for block in group if block.block_hash is None]
    return SimpleNamespace(blocks=(group,), get_unhashed_block_ids_all_groups=lambda: (unhashed,))


def life(case: Mapping[str, Any]) -> Json:
    """A request through the scheduler half: arrival, look-up, allocation, end."""
    from vllm.v1.request import RequestStatus

    scheduler = _scheduler(case)
    request = SimpleNamespace(
        request_id="request",
        kv_transfer_params=case["params"],
        prompt_token_ids=list(range(case["prompt"])),
        num_prompt_tokens=case["prompt"],
        num_computed_tokens=case["prompt"] + case.get("sampled", 1) - 1,
        status=getattr(RequestStatus, case["status"]),
    )
    scheduler.on_new_request(request)
    result: Json = {"heartbeat": bool(scheduler._heartbeat_req_engine)}
    try:
        if case.get("scheduled", True):
            result["matched"] = []
            for _ in range(case.get("askings", 1)):
                count, parked = scheduler.get_num_new_matched_tokens(request, case["computed"])
                result["matched"].append([count, parked])
                cached = case["computed"] // BLOCK_SIZE
                total = -(-(case["computed"] + count or case["prompt"]) // BLOCK_SIZE)
                scheduler.update_state_after_alloc(request, _blocks(cached, total - cached), count)
                _drain(scheduler, result)
        held = -(-request.num_computed_tokens // BLOCK_SIZE)
        blocks = list(range(1, held + 1)) if case.get("scheduled", True) else []
        pinned, params = scheduler.request_finished(request, (blocks,))
        _drain(scheduler, result)
    except (AssertionError, KeyError, TypeError) as error:
        return {"crash": type(error).__name__}
    result["pinned"] = pinned
    result["returned"] = params
    if params is not None and params["remote_blocks_expiry_time"] is not None:
        params["remote_blocks_expiry_time"] -= time.perf_counter()
    return result


def _drain(scheduler: Any, result: Json) -> None:
    """Add to a result what the scheduler half hands to the worker half."""
    nothing = SimpleNamespace(req_ids=[], new_block_ids=[], resumed_req_ids=set())
    step = SimpleNamespace(scheduled_new_reqs=[], scheduled_cached_reqs=nothing)
    meta = scheduler.build_connector_meta(step)
    reads = result.setdefault("reads", [])
    notifies = result.setdefault("notifies", [])
    for item in meta.reqs_to_recv.values():
        if item.awaiting_kvs:
            reads.append(list(item.local_block_ids[0]))
        else:
            notifies.append(item.remote.request_id)
    result["tracked"] = result.get("tracked", False) or bool(meta.reqs_in_batch)
    ttl = [deadline - meta.scheduler_clock for deadline in meta.reqs_to_send.values()]
    result["ttl"] = [round(value) for value in ttl] or result.get("ttl", [])


def pairing(case: Mapping[str, Any]) -> Json:
    """Which remote blocks go into the local ones."""
    from vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_worker import (
        NixlPullConnectorWorker,
    )

    worker = SimpleNamespace(_has_mamba=False)
    try:
        _, remote = NixlPullConnectorWorker._apply_prefix_caching(
            worker, [case["local"]], case["remote"], 1, 1
        )
    except AssertionError:
        return {"crash": "AssertionError"}
    return {"remote": list(remote[0])}


def expiry(case: Mapping[str, Any]) -> Json:
    """Whether a read is declined, with so many seconds left on the owner's clock."""
    from vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_worker import (
        NixlPullConnectorWorker,
    )

    deadline = None
    if case["left"] is not None:
        deadline = time.perf_counter() + case["offset"] + case["left"]
    worker = SimpleNamespace(_engine_clock_offset={"engine": case["offset"]})
    meta = SimpleNamespace(
        remote=SimpleNamespace(blocks_expiry_time=deadline, engine_id="engine"),
        local_physical_block_ids=([1],),
    )
    return {"declined": NixlPullConnectorWorker._is_turn2_read_expired(worker, meta)}


def leases(case: Mapping[str, Any]) -> Json:
    """Events on the worker half of an owner, in order; times are seconds from the start."""
    from vllm.distributed.kv_transfer.kv_connector.v1.nixl import base_worker, pull_worker
    from vllm.distributed.kv_transfer.kv_connector.v1.nixl.metadata import NixlConnectorMetadata

    now = [1000.0]
    clock = SimpleNamespace(perf_counter=lambda: now[0])
    stats: dict[str, int] = defaultdict(int)
    inbox: list[bytes] = []
    worker = SimpleNamespace(
        transfer_topo=object(),
        tp_rank=0,
        pcp_rank=0,
        pcp_dcp_sharded=False,
        xfer_stats=SimpleNamespace(
            record_notification_after_expiry=lambda: stats.update(late=stats["late"] + 1),
            record_kv_expired_req=lambda: stats.update(expired=stats["expired"] + 1),
        ),
        nixl_wrapper=SimpleNamespace(
            get_new_notifs=lambda: {"agent": [inbox.pop() for _ in range(len(inbox))]}
        ),
        consumer_notification_counts_by_req=defaultdict(int),
        expected_consumer_notifications_by_req={},
        _reqs_to_send={},
        _reqs_to_process=set(),
        _lease_extension=case["lease"] * 2 // 3,
        _ready_requests=queue.Queue(),
        _send_heartbeats=lambda _: None,
    )
    worker_class = pull_worker.NixlPullConnectorWorker
    worker._handle_heartbeat = lambda text: worker_class._handle_heartbeat(worker, text)
    freed: list[list[str]] = []
    replaced = (base_worker.time, pull_worker.time)
    base_worker.time = pull_worker.time = clock
    try:
        for kind, request_id, at in case["events"]:
            now[0] = 1000.0 + at
            if kind in ("track", "pin"):
                meta = NixlConnectorMetadata()
                meta.scheduler_clock = now[0]
                if kind == "track":
                    meta.reqs_in_batch = {request_id}
                else:
                    meta.reqs_to_send = {request_id: now[0] + case["lease"]}
                worker_class.start_load_kv(worker, meta)
            elif kind == "notify":
                inbox.append(f"{request_id}:1".encode())
            elif kind == "heartbeat":
                inbox.append(f"HB:{request_id}".encode())
            done = worker_class._get_new_notifs(worker)
            worker_class._reap_expired_send_leases(worker, done)
            freed.append(sorted(done))
    finally:
        base_worker.time, pull_worker.time = replaced
    return {"freed": freed, "late": stats["late"], "expired": stats["expired"]}


def config(case: Mapping[str, Any]) -> Json:
    """Whether a transfer configuration is accepted."""
    from vllm.config import KVTransferConfig

    try:
        KVTransferConfig(**case["config"])
    except ValueError as error:
        return {
            "accepted": False,
            "names": [str(key) for key in case["config"] if key in str(error)],
        }
    return {"accepted": True}


def body(case: Mapping[str, Any]) -> Json:
    """Whether the API takes a body, as far as the request model decides it."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.exceptions import VLLMValidationError

    try:
        request = ChatCompletionRequest.model_validate(case["body"])
        limits = (request.max_completion_tokens, request.max_tokens, 1000)
        limit = next(limit for limit in limits if limit is not None)
        request.to_sampling_params(limit, {})
    except (ValueError, VLLMValidationError):
        return {"accepted": False}
    return {"accepted": True}


HOOKS: dict[str, Callable[[Mapping[str, Any]], Json]] = {
    "life": life,
    "pairing": pairing,
    "expiry": expiry,
    "leases": leases,
    "config": config,
    "body": body,
}


def main() -> None:
    """Run all cases; vLLM's own output goes to standard error."""
    cases = json.load(sys.stdin)
    answers, sys.stdout = sys.stdout, sys.stderr
    json.dump([HOOKS[case["hook"]](case) for case in cases], answers)


if __name__ == "__main__":
    main()
