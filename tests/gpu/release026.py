"""Our connector on vLLM 0.26, for measurements only: the newest release for torch 2.11.

The connector is written for 0.31 to 0.33 and refuses 0.26. What it misses there is put in here,
as far as a measurement needs it: deadlines of reads are not checked, since 0.26 reports the end of
a transfer in another shape, and a read that cannot be begun ends the worker.
"""

import importlib
import os
import sys
from typing import Any

from disaggpair_connector import compat

compat.LOWEST = (0, 26)  # type: ignore[misc]  # a later release's rule, bent for 0.26

_V1 = "vllm.distributed.kv_transfer.kv_connector.v1"
_base = importlib.import_module(f"{_V1}.base").KVConnectorBase_V1
_scheduler = importlib.import_module(f"{_V1}.nixl.pull_scheduler").NixlPullConnectorScheduler

_base.bind_kv_cache_manager = lambda self, manager: None
_scheduler.get_exchange_clipped_blocks = _scheduler.get_sw_clipped_blocks

_engine = importlib.import_module("disaggpair_connector.engine")
vars(_engine)["name_checks_fault"] = lambda config: None  # asks for settings that 0.26 has not

_worker = importlib.import_module("disaggpair_connector.worker").PairWorker
del _worker._pop_done_transfers, _worker._read_blocks_for_req
_worker.expected_consumer_notifications_by_req = {}

_connector: Any = importlib.import_module("disaggpair_connector.connector").DisaggPairConnector


class DisaggPairConnector(_connector):  # type: ignore[misc]  # a later release's rule, bent for 0.26
    """Ours, bound to the cache manager by the one call that 0.26 makes after it has one."""

    @property
    def prefer_cross_layer_blocks(self) -> bool:
        return os.environ.get("PAIR_PACKED") == "1"

    def bind_gpu_block_pool(self, pool: Any) -> None:
        super().bind_gpu_block_pool(pool)
        scheduler = sys._getframe(1).f_locals["self"]
        self.bind_kv_cache_manager(scheduler.kv_cache_manager)
