"""Time that tests move, in the places where the connector and vLLM's NIXL halves ask for it."""

import time
from types import ModuleType
from typing import Any


class Clock:
    """Seconds that pass when a test says so; every call takes a microsecond."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        self.now += 1e-6
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


CLOCK = Clock()
"""The one of this process, for all engines in it."""


class ToyTime:
    """Stands where a module has imported `time`."""

    perf_counter = staticmethod(CLOCK)
    monotonic = staticmethod(CLOCK)
    time = staticmethod(CLOCK)

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def install(*modules: ModuleType) -> None:
    """Let the modules ask the toy clock."""
    for module in modules:
        assert vars(module)["time"] is time
        vars(module)["time"] = ToyTime()
