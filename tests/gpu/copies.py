"""What a read costs by its number of descriptors: NIXL alone, two processes, one GPU or two.

    python copies.py --out FILE [--tokens 21760] [--layers 64] [--threads 4,0,1,16] [--gpus 2]

The reader takes the same bytes again and again: the KV of `tokens` tokens of all layers, laid out
as an engine lays it out, in blocks that are scattered over both pools. NIXL itself makes one
descriptor of neighbours that rise on both sides, so `merged` cases have runs of blocks.
"""
# ruff: noqa: T201 - it prints its table

import argparse
import importlib
import json
import multiprocessing
import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

TOKEN_BYTES: Final = 4096
"""K and V of one token in one layer: 8 heads of 128, bfloat16."""

_POOL: Final = 1.25
"""Blocks of a pool for each block that is read."""


@dataclass(frozen=True)
class Case:
    name: str
    block_size: int
    regions: int
    """Memory regions that each hold a part of every block: one a layer, or 1 if packed."""
    run: int = 1
    """Neighbouring blocks, on both sides, that follow one another; 0 for all."""


def cases(layers: int) -> list[Case]:
    return [
        *(Case(f"block {size}, by layer", size, layers) for size in (16, 64, 128, 256)),
        Case("block 16, by layer, K and V apart", 16, 2 * layers),
        Case("block 16, by layer, runs of 2", 16, layers, 2),
        Case("block 16, by layer, runs of 8", 16, layers, 8),
        Case("block 16, by layer, one run", 16, layers, 0),
        *(Case(f"block {size}, packed", size, 1) for size in (16, 64, 128, 256)),
        Case("block 16, packed, one run", 16, 1, 0),
    ]


class Side:
    """One process's agent and memory."""

    def __init__(self, name: str, size: int, threads: int, memory: str) -> None:
        self.torch: Any = importlib.import_module("torch")
        api = importlib.import_module("nixl._api")
        self.numpy: Any = importlib.import_module("numpy")
        self.memory = memory
        self.agent: Any = api.nixl_agent(
            name, api.nixl_agent_config(num_threads=threads, capture_telemetry=True)
        )
        device = "cuda" if memory == "VRAM" else "cpu"
        self.buffer: Any = self.torch.zeros(size // 4, dtype=self.torch.int32, device=device)
        self.address: int = self.buffer.data_ptr()
        registered = self.agent.get_reg_descs([(self.address, size, 0, "")], memory)
        self.agent.register_memory(registered)

    def prepared(self, owner: str, address: int, size: int, count: int) -> Any:
        """Descriptors of a pool that is `count` parts of `size` bytes from `address` on."""
        rows = self.numpy.empty((count, 3), dtype=self.numpy.uint64)
        rows[:, 0] = address + self.numpy.arange(count, dtype=self.numpy.uint64) * size
        rows[:, 1] = size
        rows[:, 2] = 0
        return self.agent.prep_xfer_dlist(owner, rows, self.memory)


def own(pipe: Any, size: int, threads: int, memory: str, gpus: str) -> None:
    """D: hold memory whose words say where they are, and let it be read."""
    os.environ["CUDA_VISIBLE_DEVICES"] = gpus
    side = Side("owner", size, threads, memory)
    side.buffer.copy_(
        side.torch.arange(size // 4, dtype=side.torch.int32, device=side.buffer.device)
    )
    if memory == "VRAM":
        side.torch.cuda.synchronize()
    pipe.send((side.agent.get_agent_metadata(), side.address))
    while not pipe.poll(0.05):
        side.agent.get_new_notifs()


def scattered(numpy: Any, seed: int, pool: int, count: int, run: int) -> Any:
    """`count` blocks of a pool in runs of `run`, the runs in random order."""
    if run == 0:
        return numpy.arange(count) + (pool - count) // 2
    starts = numpy.random.default_rng(seed).permutation(pool // run)[: -(-count // run)] * run
    return (starts[:, None] + numpy.arange(run)).ravel()[:count]


def read(
    side: Side, peer: str, address: int, case: Case, tokens: int, layers: int
) -> Iterator[dict[str, float]]:
    numpy = side.numpy
    blocks = tokens // case.block_size
    pool = int(blocks * _POOL)
    part = case.block_size * TOKEN_BYTES * layers // case.regions
    offsets = numpy.arange(case.regions)[:, None] * pool
    mine = (offsets + scattered(numpy, 1, pool, blocks, case.run)).ravel().astype(numpy.int32)
    theirs = (offsets + scattered(numpy, 2, pool, blocks, case.run)).ravel().astype(numpy.int32)
    started = time.perf_counter()
    local = side.prepared("NIXL_INIT_AGENT", side.address, part, case.regions * pool)
    remote = side.prepared(peer, address, part, case.regions * pool)
    prepare_s = time.perf_counter() - started
    for repeat in range(4):
        began = time.perf_counter()
        handle = side.agent.make_prepped_xfer("READ", local, mine, remote, theirs, b"done")
        made = time.perf_counter()
        state = side.agent.transfer(handle)
        posted = time.perf_counter()
        while state == "PROC" and time.perf_counter() - posted < 60:
            state = side.agent.check_xfer_state(handle)
        ended = time.perf_counter()
        if state != "DONE":
            raise RuntimeError(f"{case.name}: {state}")
        seen = side.agent.get_xfer_telemetry(handle)
        side.agent.release_xfer_handle(handle)
        if repeat == 0:
            check(side, mine, theirs, part)
            continue
        yield {
            "prepare_ms": prepare_s * 1e3,
            "make_ms": (made - began) * 1e3,
            "post_ms": (posted - made) * 1e3,
            "total_ms": (ended - began) * 1e3,
            "transfer_ms": (ended - made) * 1e3,
            "descriptors": seen.descCount,
            "bytes": seen.totalBytes,
        }
    side.agent.release_dlist_handle(local)
    side.agent.release_dlist_handle(remote)


def check(side: Side, mine: Any, theirs: Any, part: int) -> None:
    """Raise RuntimeError unless the first word of each part is the one that was read."""
    where = side.torch.as_tensor(mine.astype("int64") * (part // 4), device=side.buffer.device)
    wanted = theirs.astype("int64") * (part // 4)
    found = side.buffer[where].cpu().numpy()
    if not (found == wanted.astype("int32")).all():
        raise RuntimeError("the bytes that arrived are others than those that were read")


def compare(
    threads: int, arguments: argparse.Namespace, names: set[str] | None
) -> list[dict[str, Any]]:
    size = int(arguments.tokens * TOKEN_BYTES * arguments.layers * _POOL)
    # Its own GPU first. UCX copies directly only between GPUs that both processes can see.
    os.environ["CUDA_VISIBLE_DEVICES"], gpus = ("0", "0") if arguments.gpus == 1 else ("0,1", "1,0")
    context = multiprocessing.get_context("spawn")
    near, far = context.Pipe()
    owner = context.Process(
        target=own, args=(far, size, threads, arguments.memory, gpus), daemon=True
    )
    owner.start()
    side = Side("reader", size, threads, arguments.memory)
    metadata, address = near.recv()
    peer = side.agent.add_remote_agent(metadata)
    rows: list[dict[str, Any]] = []
    for case in cases(arguments.layers):
        if names is not None and case.name not in names:
            continue
        runs = list(read(side, peer, address, case, arguments.tokens, arguments.layers))
        row = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        rows.append({"case": case.name, "threads": threads, **row})
        print(
            f"{case.name:36} threads {threads:2}  {row['descriptors']:7.0f} descriptors "
            f"{row['bytes'] / 1e9:5.2f} GB  prepare {row['prepare_ms']:7.1f}  make "
            f"{row['make_ms']:6.2f}  post {row['post_ms']:7.2f}  "
            f"transfer {row['transfer_ms']:7.2f} ms"
            f"  {row['bytes'] / row['transfer_ms'] / 1e6:6.1f} GB/s",
            flush=True,
        )
    near.send("end")
    owner.join(20)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tokens", type=int, default=21_760)
    parser.add_argument("--layers", type=int, default=64)
    parser.add_argument("--threads", default="4,0,1,16")
    parser.add_argument("--memory", default="VRAM")
    parser.add_argument("--gpus", type=int, choices=(1, 2), default=1)
    arguments = parser.parse_args()
    some = {"block 16, by layer", "block 128, by layer", "block 16, packed"}
    rows: list[dict[str, Any]] = []
    for number, threads in enumerate(map(int, arguments.threads.split(","))):
        rows += compare(threads, arguments, some if number else None)
    arguments.out.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
