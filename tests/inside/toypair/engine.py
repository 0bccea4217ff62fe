"""One engine: vLLM's core with its scheduler, our connector in both places, and the toy worker."""

import itertools
import json
import os
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
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
    set_current_vllm_config,
)
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1 import KVConnectorRole
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.engine.core import EngineCore
from vllm.v1.executor.abstract import Executor
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    SlidingWindowSpec,
)
from vllm.v1.outputs import DraftTokenIds, KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from disaggpair_connector.book import LeaseBook
from disaggpair_connector.lease import Lease
from toypair import seams
from toypair.model import Memory, ToyModel
from toypair.network import ToyReader

Role = Literal["prefill", "decode"]
Params = dict[str, Any]

_names = itertools.count(1)
"""Of requests; no two of a process are the same, as with a router."""

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


@dataclass
class Outcome:
    """What came of a request so far."""

    tokens: list[int] = field(default_factory=list)
    reason: str | None = None
    """Why it finished, as vLLM says it; None while it has not."""
    params: Params | None = None


class Lazy(Future[Any]):
    """A result that is computed when it is asked for, as a GPU's is when the host waits for it."""

    def __init__(self, compute: Any) -> None:
        super().__init__()
        self._compute = compute

    def result(self, timeout: float | None = None) -> Any:
        if not self.done():
            self.set_result(self._compute())
        return super().result()


class ToyExecutor(Executor):  # type: ignore[misc]  # vLLM has no types here
    """The worker, in vLLM's place for one."""

    supports_pp = False

    def _init_executor(self) -> None:
        self.salts: dict[str, str | None] = {}
        self._parts: Any = None
        self._transfers: KVConnectorOutput | None = None

    def start(self, shape: Shape, config: KVCacheConfig) -> None:
        """Allocate, and let the connector register it."""
        first = config.kv_cache_groups[0].kv_cache_spec
        self.memory = Memory(shape.blocks, shape.block_size, first.num_kv_heads, first.head_size)
        windows = [None, shape.window] if shape.window else [None]
        self.model = ToyModel(self.memory, windows, self.salts, shape.draft_tokens)
        with set_current_vllm_config(self.vllm_config):
            self.connector = KVConnectorFactory.create_connector(
                config=self.vllm_config, role=KVConnectorRole.WORKER, kv_cache_config=config
            )
            layers = [name for group in config.kv_cache_groups for name in group.layer_names]
            self.connector.register_kv_caches(dict.fromkeys(layers, self.memory.tensor))

    def collective_rpc(self, method: Any, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(method)

    def check_health(self) -> None:
        pass

    def get_kv_connector_handshake_metadata(self) -> Any:
        return [{(0, 0): self.connector.get_handshake_metadata()}]

    def execute_model(self, scheduler_output: SchedulerOutput, non_block: bool = False) -> Any:
        """Give out the step: transfers start now, what is computed comes with sampling."""
        parts = self.model.take(scheduler_output)
        is_empty = scheduler_output.total_num_scheduled_tokens == 0
        is_async = self.vllm_config.scheduler_config.async_scheduling
        if is_empty or not is_async:
            sampled = self.model.compute(parts)
            output = self._output(parts, sampled, self._transfer(scheduler_output))
            self._pending: Any = output
        else:
            transfers = self._transfer(scheduler_output)
            self._pending = Lazy(lambda: self._output(parts, self.model.compute(parts), transfers))
        result = self._pending if is_empty else None
        if not non_block:
            return result
        future: Future[Any] = Future()
        future.set_result(result)
        return future

    def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:
        pending = self._pending
        if isinstance(pending, Lazy):
            return pending if non_block else pending.result()
        if not non_block:
            return pending
        future: Future[Any] = Future()
        future.set_result(pending)
        return future

    def take_draft_token_ids(self) -> DraftTokenIds | None:
        drafts, self.model.drafts = self.model.drafts, {}
        return DraftTokenIds(list(drafts), list(drafts.values()))

    def _transfer(self, step: SchedulerOutput) -> KVConnectorOutput:
        """The connector's part of a step, in the order of vLLM's model runner."""
        connector = self.connector
        connector.bind_connector_metadata(step.kv_connector_metadata)
        connector.start_load_kv(None)
        connector.wait_for_save()
        results = connector.get_transfer_results(step.finished_req_ids)
        output = KVConnectorOutput(
            finished_sending=results.finished_sending,
            finished_recving=results.finished_recving,
            failed_recving=results.failed_recving,
            invalid_block_ids=connector.get_block_ids_with_load_errors(),
            kv_connector_stats=connector.get_kv_connector_stats(),
        )
        connector.clear_connector_metadata()
        return output

    @staticmethod
    def _output(
        parts: Sequence[Any], sampled: dict[str, list[int]], transfers: KVConnectorOutput
    ) -> ModelRunnerOutput:
        if not parts:
            return ModelRunnerOutput.with_kv_conn_output_only(transfers)
        names = [part.request_id for part in parts]
        return ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: number for number, name in enumerate(names)},
            sampled_token_ids=[sampled[name] for name in names],
            kv_connector_output=transfers,
        )


class ToyCore(EngineCore):  # type: ignore[misc]  # vLLM has no types here
    """vLLM's core, told how large the cache is."""

    def __init__(self, config: VllmConfig, shape: Shape) -> None:
        self._shape = shape
        super().__init__(config, ToyExecutor, log_stats=True)

    def _initialize_kv_caches(self, vllm_config: VllmConfig) -> KVCacheConfig:
        config = cache_config(vllm_config, self._shape)
        vllm_config.cache_config.num_gpu_blocks = config.num_blocks
        self.model_executor.start(self._shape, config)
        return config


class ToyEngine:
    """An engine and its requests.

    Args:
        role: of the pair's.
        shape: how it is set up.
    """

    def __init__(self, role: Role, shape: Shape) -> None:
        seams.install()
        self.role = role
        self.shape = shape
        self.port = free_port()
        os.environ["VLLM_NIXL_SIDE_CHANNEL_HOST"] = "127.0.0.1"
        os.environ["VLLM_NIXL_SIDE_CHANNEL_PORT"] = str(self.port)
        self.config = engine_config(role, shape, free_port())
        with set_current_vllm_config(self.config):
            self.core = ToyCore(self.config, shape)
        self.outcomes: dict[str, Outcome] = {}
        self.counted: Counter[str] = Counter()
        """What went into the reports for /metrics, added up by name."""
        self.reports: list[dict[str, Any]] = []
        """What vLLM hands on to the process that serves /metrics, in order."""

    # What it is made of.

    @property
    def scheduler(self) -> Any:
        """vLLM's scheduler."""
        return self.core.scheduler

    @property
    def half(self) -> Any:
        """Our scheduler half."""
        return self.scheduler.connector.connector_scheduler

    @property
    def worker(self) -> Any:
        """Our worker half."""
        return self.core.model_executor.connector.connector_worker

    @property
    def memory(self) -> Memory:
        """The blocks' content."""
        return self.core.model_executor.memory  # type: ignore[no-any-return]

    @property
    def pool(self) -> Any:
        """vLLM's block pool."""
        return self.scheduler.kv_cache_manager.block_pool

    @property
    def reader(self) -> ToyReader:
        """Its questions to the other role."""
        return self.half._reader  # type: ignore[no-any-return]

    @property
    def book(self) -> LeaseBook:
        """Its leases."""
        return self.half._book  # type: ignore[no-any-return]

    @property
    def leases(self) -> dict[str, Lease]:
        """Its leases by id, as they are and not as of now."""
        return dict(self.book._table._leases)

    # Requests.

    def add(
        self,
        prompt: Sequence[int],
        params: Params | None = None,
        *,
        tokens: int = 1,
        stop: Sequence[int] = (),
        salt: str | None = None,
        is_refused: bool = False,
        **sampling: Any,
    ) -> str:
        """Add a request, with its parameters as they come over a wire.

        Args:
            prompt: its tokens.
            params: `kv_transfer_params`.
            tokens: how many it may say.
            stop: tokens that end it.
            salt: of its prefix.
            is_refused: whether it is the API's stand-in for one that it has refused.
            sampling: for vLLM's SamplingParams.
        """
        name = f"{self.role}-{next(_names)}"
        extra = {"kv_transfer_params": json.loads(json.dumps(params))} if params is not None else {}
        request = Request(
            name,
            list(prompt),
            SamplingParams(
                max_tokens=tokens,
                stop_token_ids=list(stop),
                ignore_eos=True,
                extra_args=extra,
                **sampling,
            ),
            None,
            cache_salt=salt,
            abort_immediately=is_refused,
            block_hasher=self.core.request_block_hasher,
        )
        self.core.model_executor.salts[name] = salt
        self.outcomes[name] = Outcome()
        self.core.add_request(request)
        return name

    def abort(self, *names: str) -> None:
        """Abort requests."""
        self.core.abort_requests(list(names))
        for name in names:
            self.outcomes[name].reason = self.outcomes[name].reason or "abort"

    def step(self) -> bool:
        """One turn of the engine's loop; False if it had nothing to do."""
        if not self.scheduler.has_requests() and not self.core.batch_queue:
            return False
        outputs, executed = self.core.step_fn()
        self.core.post_step(executed)
        for group in (outputs or {}).values():
            self._count(group.scheduler_stats)
            for output in group.outputs:
                outcome = self.outcomes[output.request_id]
                outcome.tokens += output.new_token_ids
                if output.finish_reason is not None:
                    outcome.reason = str(output.finish_reason)
                    # As msgpack and JSON make of it on its way.
                    outcome.params = json.loads(json.dumps(output.kv_transfer_params))
        return True

    def _count(self, stats: Any) -> None:
        if not stats or not stats.kv_connector_stats:
            return
        self.reports.append(json.loads(json.dumps(stats.kv_connector_stats)))
        for name, values in stats.kv_connector_stats.items():
            if values:
                self.counted[name.removeprefix("disaggpair:")] += sum(values)

    def run(self, *names: str, steps: int = 400) -> None:
        """Step until requests have finished, or until it is idle if none is named."""
        for _ in range(steps):
            if all(self.outcomes[name].reason for name in names) if names else False:
                return
            if not self.step():
                break
        else:
            raise AssertionError(f"{self.role} did not end in {steps} steps: {self.status()}")
        assert all(self.outcomes[name].reason for name in names), self.status()

    def status(self) -> dict[str, str]:
        """Status of each request that the scheduler knows."""
        return {name: request.status.name for name, request in self.scheduler.requests.items()}

    def is_parked(self, name: str) -> bool:
        """Whether a request waits for a read."""
        request = self.scheduler.requests.get(name)
        return bool(request and request.status == RequestStatus.WAITING_FOR_REMOTE_KVS)

    def close(self) -> None:
        """End it."""
        self.worker.nixl_wrapper.close()
        self.core.model_executor.connector.shutdown()
        self.half._stop_event.set()
        self.half._nixl_handshake_listener_t = None  # it ends by itself within a second
        self.scheduler.connector.shutdown()


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
