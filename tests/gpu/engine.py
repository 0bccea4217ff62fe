"""`vllm serve` as measured here: `python engine.py serve ...` with four changes to vLLM 0.26.

Environment:
    PAIR_GATE: a file; the engine has done its imports and waits for it before it takes the GPU.
    PAIR_MLPS: this many sets of MLP weights serve all layers in turn, so that two engines of the
        whole depth fit on one GPU. Arithmetic, attention and KV stay those of each layer.
    PAIR_SHUFFLE: a seed; the block pool starts in a random order, as after long mixed traffic.
        A fresh pool hands out rising runs on both sides, which NIXL merges to one descriptor each.
    PAIR_WEIGHTS: drawn weights in the place of vLLM's dummy ones, under which every token is as
        likely as any other, whatever the prompt. The same in every engine.

The process with the engine is spawned and imports this module again; the changes are made there.
"""

import importlib
import math
import os
import random
import sys
import time
import zlib
from pathlib import Path
from typing import Any

_POLL_S = 0.05
_SHARP = 3.0
"""Deviation of the scores that a head gives to the tokens before: with it some three of 24,000
have most of its attention, so that an answer depends on what stands where."""
_GAINS = {"o_proj": 0.3, "down_proj": 0.3, "lm_head": 6.0}
"""What a matrix makes of an input of deviation 1. With 6 at the end few tokens are likely."""


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


def draw_weights() -> None:
    loader = importlib.import_module("vllm.model_executor.model_loader.dummy_loader")
    torch = importlib.import_module("torch")

    def load_weights(self: Any, model: Any, model_config: Any) -> None:
        with torch.no_grad():
            for name, weight in model.state_dict().items():
                if not torch.is_floating_point(weight):
                    continue
                if weight.dim() < 2:
                    weight.fill_(_SHARP if "q_norm" in name else 1.0)
                    continue
                gain = next((gain for part, gain in _GAINS.items() if part in name), 1.0)
                inputs = 1 if "embed_tokens" in name else weight.shape[-1]
                seed = torch.Generator(device=weight.device).manual_seed(zlib.crc32(name.encode()))
                weight.normal_(0.0, gain / math.sqrt(inputs), generator=seed)

    loader.DummyModelLoader.load_weights = load_weights


def change_engine() -> None:
    if os.environ.get("PAIR_WEIGHTS"):
        draw_weights()
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
