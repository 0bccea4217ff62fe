"""Hold one process of an engine still, so that something can happen in the middle of a transfer."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from disaggpair_bed.cpu.engine import Engine

WORKER: Final = "VLLM::Worker"
"""Holds the KV cache and the NIXL agent; a read over TCP does not move without it."""

ENGINE_CORE: Final = "VLLM::EngineCore"
"""Schedules, and listens for questions about leases."""


@contextmanager
def frozen(engine: Engine, name: str) -> Iterator[None]:
    """Nothing runs in the engine's processes of that name; killing them is possible."""
    held = [process.pid for process in engine.usage() if process.name == name]
    if not held:
        raise LookupError(f"{engine.url} has no process {name}")
    for pid in held:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in held:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
