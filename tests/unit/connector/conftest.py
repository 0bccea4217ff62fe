"""A stand-in for vLLM: the few names that the connector uses, in modules of their own."""

import importlib
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import disaggpair_connector
from disaggpair_connector import compat

V1 = "vllm.distributed.kv_transfer.kv_connector.v1"
OURS = ("engine", "connector", "side", "decode", "prefill", "worker", "metrics")


class KVConnectorRole(Enum):
    SCHEDULER = 0
    WORKER = 1


class NixlBaseConnector:
    """Records what it was built with."""

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        self.built_with = (vllm_config, role, kv_cache_config)
        self.engine_id = "engine"
        self.connector_scheduler: Any = None
        self.connector_worker: Any = None

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config: dict[str, Any]) -> bool:
        return False

    def bind_kv_cache_manager(self, kv_cache_manager: Any) -> None:
        self.bound = kv_cache_manager

    def get_kv_connector_stats(self) -> Any:
        return "the worker's"

    def shutdown(self) -> None:
        if self.connector_scheduler is not None:
            self.connector_scheduler.shutdown()


class NixlPullConnector(NixlBaseConnector):
    """vLLM's own makes its halves; ours must not."""

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        raise NotImplementedError


class Half:
    """A half of vLLM's, on a loopback address."""

    side_channel_host = "127.0.0.1"
    block_size = 16
    is_bidirectional_kv_xfer_enabled = True
    kv_recompute_threshold = 64
    _kv_lease_duration = 30
    _is_hma_required = False
    _has_mamba = False

    def __init__(self, vllm_config: Any, engine_id: str, kv_cache_config: Any) -> None:
        self.engine_id = engine_id
        self.kv_cache_config = kv_cache_config

    def shutdown(self) -> None:
        pass


class WorkerHalf(Half):
    """vLLM's worker half, which finds what a test lets it find."""

    def __init__(self, vllm_config: Any, engine_id: str, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, engine_id, kv_cache_config)
        self.compat_hash = ""
        self.xfer_handshake_metadata: Any = None
        self.consumer_notification_counts_by_req: dict[str, int] = {}
        self.expected_consumer_notifications_by_req: dict[str, int] = {}
        self._reqs_to_send: dict[str, float] = {}
        self._reqs_to_process: set[str] = set()
        self._recving_metadata: dict[str, Any] = {}
        self._recv_failures: set[str] = set()
        self._handshake_lock = threading.Lock()
        self._remote_agents: dict[str, Any] = {}
        self._engine_by_address: dict[tuple[str, int], str] = {}
        self.read: list[str] = []
        self.fault: Exception | None = None
        """What the beginning of a read raises."""
        self.begun: list[Any] = []
        self.notified: set[str] = set()
        self.arrived: set[str] = set()
        """Reads that have ended."""
        self.stuck: set[int] = set()
        """Handles of transfers that cannot be released."""

    def register_kv_caches(self, kv_caches: Any) -> None:
        self.compat_hash = "vllm"
        if kv_caches:
            self.xfer_handshake_metadata = SimpleNamespace(compatibility_hash="vllm")

    def start_load_kv(self, metadata: Any) -> None:
        self.begun.append(metadata)

    def _read_blocks_for_req(self, req_id: str, meta: Any) -> None:
        if self.fault is not None:
            raise self.fault
        self.read.append(req_id)

    def _get_new_notifs(self) -> set[str]:
        return set(self.notified)

    def _pop_done_transfers(self, transfers: dict[str, list[int]]) -> tuple[set[str], set[str]]:
        done = self.arrived & transfers.keys()
        for request_id in done:
            del transfers[request_id]
        return done, set()

    def _handle_failed_transfer(
        self, request_id: str, handle: int | None, failed: set[str]
    ) -> bool:
        failed.add(request_id)
        return handle not in self.stuck


class PromMetrics:
    """vLLM's metrics of a connector: the classes to make metrics of, and the labels of engines."""

    def __init__(
        self,
        vllm_config: Any,
        metric_types: dict[Any, Any],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> None:
        self._gauge_cls = metric_types["gauge"]
        self._counter_cls = metric_types["counter"]
        self._histogram_cls = metric_types["histogram"]
        self.per_engine_labelvalues = per_engine_labelvalues
        self.observed: list[Any] = []

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        self.observed.append(transfer_stats_data)


class Stats:
    """vLLM's transfer statistics with one list."""

    def __init__(self, data: dict[str, list[float]] | None = None) -> None:
        self.data: dict[str, list[float]] = data or {}
        if not self.data:
            self.reset()

    def reset(self) -> None:
        self.data = {"transfer_duration": []}

    def is_empty(self) -> bool:
        return not self.data["transfer_duration"]


Load = Callable[..., ModuleType]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Import the connector into a vLLM of some version."""
    monkeypatch.setattr(compat, "installed_nixl", lambda: {"nixl": "1.5.1", "nixl-cu13": "1.5.1"})

    def import_connector(version: str = "0.32.0", base: type = NixlPullConnector) -> ModuleType:
        names: dict[str, dict[str, Any]] = {
            "vllm": {"__version__": version},
            "vllm.logger": {"init_logger": logging.getLogger},
            f"{V1}.base": {"KVConnectorRole": KVConnectorRole},
            "vllm.envs": {"VLLM_NIXL_SIDE_CHANNEL_PORT": 5600},
            "vllm.v1.kv_cache_interface": {"AttentionSpec": object},
            "vllm.platforms": {"current_platform": SimpleNamespace(device_type="cpu")},
            f"{V1}.nixl.connector": {
                "NixlBaseConnector": NixlBaseConnector,
                "NixlPullConnector": base,
            },
            f"{V1}.nixl.pull_scheduler": {"NixlPullConnectorScheduler": Half},
            f"{V1}.nixl.pull_worker": {"NixlPullConnectorWorker": WorkerHalf},
            f"{V1}.nixl.stats": {"NixlKVConnectorStats": Stats, "NixlPromMetrics": PromMetrics},
        }
        parents = {name.rsplit(".", depth)[0] for name in names for depth in range(8)}
        for name in sorted(parents | names.keys()):
            module = ModuleType(name)
            vars(module).update(names.get(name, {}))
            monkeypatch.setitem(sys.modules, name, module)
            if (parent := name.rpartition(".")[0]) in sys.modules:
                setattr(sys.modules[parent], name.rpartition(".")[2], module)
        return importlib.import_module("disaggpair_connector.connector")

    yield import_connector
    for name in OURS:
        sys.modules.pop(f"{disaggpair_connector.__name__}.{name}", None)
        vars(disaggpair_connector).pop(name, None)  # where `from ... import` looks first


@pytest.fixture
def engine_config() -> Callable[..., SimpleNamespace]:
    """A vLLM configuration with the members that the connector reads."""

    def make(
        extra: dict[str, Any] | None = None,
        *,
        role: str = "kv_consumer",
        context_parallel: int = 1,
        prefill_context_parallel: int = 1,
        routed_experts: bool = False,
        index: int = 0,
    ) -> SimpleNamespace:
        return SimpleNamespace(
            kv_transfer_config=SimpleNamespace(
                kv_role=role, kv_buffer_device="cpu", kv_connector_extra_config=extra or {}
            ),
            parallel_config=SimpleNamespace(
                decode_context_parallel_size=context_parallel,
                prefill_context_parallel_size=prefill_context_parallel,
                data_parallel_index=index,
            ),
            aux_output_config=SimpleNamespace(enable_return_routed_experts=routed_experts),
        )

    return make
