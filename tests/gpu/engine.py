"""`vllm serve` as measured here: `python engine.py serve ...` with three changes to vLLM 0.26.

Environment:
    PAIR_GATE: a file; the engine has done its imports and waits for it before it takes the GPU.
    PAIR_MLPS: this many sets of MLP weights serve all layers in turn, so that two engines of the
        whole depth fit on one GPU. Arithmetic, attention and KV stay those of each layer.
    PAIR_SHUFFLE: a seed; the block pool starts in a random order, as after long mixed traffic.
        A fresh pool hands out rising runs on both sides, which NIXL merges to one descriptor each.

The process with the engine is spawned and imports this module again; the changes are made there.
"""

import importlib
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

_POLL_S = 0.05


def wait_at_gate(path: Path) -> None:
    base = importlib.import_module("vllm.v1.worker.worker_base")
    init_device = base.WorkerWrapperBase.init_device

    def after_gate(self: Any, *args: Any, **kwargs: Any) -> Any:
        while not path.exists():
            time.sleep(_POLL_S)
        return init_device(self, *args, **kwargs)

    base.WorkerWrapperBase.init_device = after_gate


def share_mlps(sets: int) -> None:
    model = importlib.import_module("vllm.model_executor.models.qwen3")
    make = vars(model)["Qwen3MLP"]
    made: dict[int, Any] = {}

    def shared(*args: Any, prefix: str = "", **kwargs: Any) -> Any:
        index = int(prefix.split(".layers.")[1].split(".")[0]) % sets
        if index not in made:
            made[index] = make(*args, prefix=prefix, **kwargs)
        return made[index]

    vars(model)["Qwen3MLP"] = shared


def shuffle_pool(seed: int) -> None:
    pool = importlib.import_module("vllm.v1.core.block_pool")
    queue = importlib.import_module("vllm.v1.core.kv_cache_utils").FreeKVCacheBlockQueue
    make = pool.BlockPool.__init__

    def shuffled(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        free = self.free_block_queue.get_all_free_blocks()
        random.Random(seed + os.getpid()).shuffle(free)
        self.free_block_queue = queue(free)

    pool.BlockPool.__init__ = shuffled


def change_engine() -> None:
    if gate := os.environ.get("PAIR_GATE"):
        wait_at_gate(Path(gate))
    if mlps := os.environ.get("PAIR_MLPS"):
        share_mlps(int(mlps))
    if order := os.environ.get("PAIR_SHUFFLE"):
        shuffle_pool(int(order))


if __name__ == "__mp_main__":
    change_engine()
if __name__ == "__main__":
    sys.exit(importlib.import_module("vllm.entrypoints.cli.main").main())
