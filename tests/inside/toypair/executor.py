"""vLLM's core, told how large the cache is, and the toy worker below it."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1 import KVConnectorRole
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.engine.core import EngineCore
from vllm.v1.executor.abstract import Executor
from vllm.v1.kv_cache_interface import KVCacheConfig
from vllm.v1.outputs import DraftTokenIds, KVConnectorOutput, ModelRunnerOutput

from toypair.model import Memory, ToyModel
from toypair.shape import Shape, cache_config


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
