"""A scheduler of vLLM's with a connector in it, stepped by hand: no model, no NIXL, no process.

For a program in the environment of the engines (see `released`). Scheduler, KVCacheManager, block
pool, requests and the connector's scheduler half are real. The workers are stood for by a
`Worker`, which notes what it is told to read, says at the next step that it has, and hands the
notification to the peer, as NIXL does. Every token that is sampled is `SAMPLED`.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

BLOCK_SIZE: Final = 16
SAMPLED: Final = 7
_LIMIT_S: Final = 60.0
_PAUSE_S: Final = 0.001
"""What EngineCore, too, waits after a step in which nothing could be scheduled."""


@dataclass
class Read:
    """What a worker was told about one request."""

    request_id: str
    local_blocks: list[int]
    remote_blocks: list[int]
    peer_request: str
    is_awaited: bool
    """False for a notification without a read."""


@dataclass
class Worker:
    """The worker half of one engine, as the scheduler sees it."""

    peers: dict[str, "Worker"]
    """By engine id, this one included."""
    reads: list[Read] = field(default_factory=list)
    inbox: list[str] = field(default_factory=list)
    expected: set[str] = field(default_factory=set)
    timed: set[str] = field(default_factory=set)
    """Requests whose blocks would be freed by a timer."""
    freed: set[str] = field(default_factory=set)
    """Requests that the connector says nobody will read."""
    late: list[str] = field(default_factory=list)
    """Notifications that nobody expected."""
    fails: Callable[[Read], bool] = lambda read: False
    _begun: list[Read] = field(default_factory=list)

    def take(self, metadata: Any) -> None:
        """Begin what a step begins."""
        from disaggpair_connector.prefill import FREED_REQUESTS

        for request_id, meta in metadata.reqs_to_recv.items():
            read = Read(
                request_id,
                [block for group in meta.local_block_ids for block in group],
                [block for group in meta.remote.block_ids for block in group],
                meta.remote.request_id,
                meta.awaiting_kvs,
            )
            self.reads.append(read)
            if read.is_awaited:
                self._begun.append(read)
            if meta.remote.engine_id in self.peers and not self.fails(read):
                self.peers[meta.remote.engine_id].inbox.append(read.peer_request)
        self.expected |= metadata.reqs_in_batch
        self.expected -= metadata.reqs_not_processed
        self.timed |= metadata.reqs_to_send.keys() & self.expected
        self.freed |= getattr(metadata, FREED_REQUESTS, set())

    def report(self) -> Any:
        """What has ended since the last step, as vLLM carries it; None for nothing."""
        from vllm.v1.outputs import KVConnectorOutput

        heard, self.inbox = self.inbox, []
        sent = {request_id for request_id in heard if request_id in self.expected}
        self.late += [request_id for request_id in heard if request_id not in sent]
        sent |= self.freed & self.timed
        self.expected -= sent
        self.timed -= sent
        self.freed &= self.expected
        begun, self._begun = self._begun, []
        failed = {read.request_id for read in begun if self.fails(read)}
        if not sent and not begun:
            return None
        return KVConnectorOutput(
            finished_sending=sent or None,
            finished_recving={read.request_id for read in begun} or None,
            failed_recving=failed,
        )


class SteppedEngine:
    """One engine.

    Args:
        model: folder of a model; only its configuration is read.
        kv_role: `kv_producer` or `kv_consumer`.
        peers: the workers of all engines by engine id; this engine's is added.
        blocks: size of the KV cache, the null block included.
        connector: name of the connector's class, and the module it is loaded from if not vLLM's.
        extra: more keys of `kv_connector_extra_config`.
    """

    def __init__(
        self,
        model: str,
        kv_role: str,
        peers: dict[str, Worker],
        *,
        blocks: int = 400,
        connector: tuple[str, str | None] = (
            "DisaggPairConnector",
            "disaggpair_connector.connector",
        ),
        extra: dict[str, Any] | None = None,
    ) -> None:
        from vllm.engine.arg_utils import EngineArgs
        from vllm.utils.hashing import sha256
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
        from vllm.v1.core.sched.scheduler import Scheduler
        from vllm.v1.structured_output import StructuredOutputManager

        config = EngineArgs(
            model=model,
            skip_tokenizer_init=True,
            dtype="float32",
            block_size=BLOCK_SIZE,
            max_model_len=8192,
            max_num_batched_tokens=8192,
            max_num_seqs=16,
            async_scheduling=False,
            enforce_eager=True,
            kv_transfer_config={
                "kv_connector": connector[0],
                "kv_connector_module_path": connector[1],
                "kv_role": kv_role,
                "kv_load_failure_policy": "recompute",
                "kv_connector_extra_config": {"bidirectional_kv_xfer": True, **(extra or {})},
            },
        ).create_engine_config()
        config.cache_config.num_gpu_blocks = blocks
        self.scheduler = Scheduler(
            vllm_config=config,
            kv_cache_config=_cache_config(blocks),
            structured_output_manager=StructuredOutputManager(config),
            block_size=BLOCK_SIZE,
            hash_block_size=BLOCK_SIZE,
            log_stats=True,
        )
        init_none_hash(sha256)
        self._hasher = get_request_block_hasher(BLOCK_SIZE, sha256)
        self.half = self.scheduler.connector.connector_scheduler
        self.worker = Worker(peers)
        peers[config.kv_transfer_config.engine_id] = self.worker
        self.finished: dict[str, Any] = {}
        """The parameters that each finished request returned, as a client gets them."""

    @property
    def free_blocks(self) -> int:
        """Blocks that no request and no lease has."""
        free: int = self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        return free

    def add(
        self,
        request_id: str,
        prompt: Sequence[int],
        params: dict[str, Any] | None,
        *,
        max_tokens: int = 1,
    ) -> None:
        """Let a request arrive."""
        from vllm.sampling_params import SamplingParams
        from vllm.v1.request import Request

        extra = {"kv_transfer_params": params} if params is not None else None
        sampling = SamplingParams(
            max_tokens=max_tokens, ignore_eos=True, temperature=0.0, extra_args=extra
        )
        self.scheduler.add_request(
            Request(
                request_id=request_id,
                prompt_token_ids=list(prompt),
                sampling_params=sampling,
                pooling_params=None,
                block_hasher=self._hasher,
            )
        )

    def abort(self, request_id: str) -> None:
        """Let the client of a request leave."""
        from vllm.v1.request import RequestStatus

        self.scheduler.finish_requests(request_id, RequestStatus.FINISHED_ABORTED)

    def step(self) -> bool:
        """One step, as EngineCore makes it; False when no token could be scheduled."""
        from vllm.v1.outputs import ModelRunnerOutput

        if not self.scheduler.has_requests():
            return False
        planned = self.scheduler.schedule()
        self.worker.take(planned.kv_connector_metadata)
        ids = list(planned.num_scheduled_tokens)
        sampled = [[SAMPLED] if self._is_prompt_done(request_id) else [] for request_id in ids]
        output = ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={request_id: index for index, request_id in enumerate(ids)},
            sampled_token_ids=sampled,
            kv_connector_output=self.worker.report(),
        )
        for outputs in self.scheduler.update_from_output(planned, output).values():
            for one in outputs.outputs:
                if one.finish_reason is not None:
                    returned = json.dumps(one.kv_transfer_params)
                    self.finished[one.request_id] = json.loads(returned)
        return bool(ids)

    def run(self, *request_ids: str) -> None:
        """Step until the requests are finished.

        Raises:
            TimeoutError: they are not after a minute, as when one is parked for ever.
        """
        self.step_until(lambda: all(one in self.finished for one in request_ids))

    def settle(self) -> None:
        """Step until there is nothing to step for.

        Raises:
            TimeoutError: there still is after a minute.
        """
        self.step_until(lambda: not self.scheduler.has_requests())

    def step_until(self, is_done: Callable[[], bool]) -> None:
        """Step until something is so.

        Raises:
            TimeoutError: it is not after a minute.
        """
        limit = time.monotonic() + _LIMIT_S
        while not is_done():
            if time.monotonic() > limit:
                raise TimeoutError(f"{list(self.scheduler.requests)} are left after {_LIMIT_S} s")
            if not self.step():
                time.sleep(_PAUSE_S)

    def _is_prompt_done(self, request_id: str) -> bool:
        request = self.scheduler.requests[request_id]
        done: bool = request.num_computed_tokens >= request.num_tokens
        return done


def _cache_config(blocks: int) -> Any:
    """One group of full attention, as most models have."""
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec

    spec = FullAttentionSpec(
        block_size=BLOCK_SIZE, num_kv_heads=1, head_size=1, dtype=torch.float32
    )
    return KVCacheConfig(
        num_blocks=blocks,
        kv_cache_tensors=[],
        kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
    )
