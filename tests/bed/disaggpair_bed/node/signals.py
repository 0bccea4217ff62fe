"""Turns the faults of a pod into signals, each one once."""

import signal
from collections.abc import Mapping
from typing import Protocol

from disaggpair_bed.node.faults import Faults


class Target(Protocol):
    """A container that can be sent a signal."""

    def signal(self, number: int) -> None:
        """Send it, if the container runs."""
        ...


class FaultSignals:
    """Remembers which faults of one pod have acted."""

    def __init__(self) -> None:
        self._hung: frozenset[str] = frozenset()
        self._killed: frozenset[str] = frozenset()

    def apply(self, faults: Faults, containers: Mapping[str, Target]) -> None:
        """Send what is new since the last call. A name of no container is ignored."""
        for number, names in (
            (signal.SIGSTOP, faults.hung - self._hung),
            (signal.SIGCONT, self._hung - faults.hung),
            (signal.SIGKILL, faults.kill - self._killed),
        ):
            for name in names:
                target = containers.get(name.partition("#")[0])
                if target is not None:
                    target.signal(number)
        self._hung, self._killed = faults.hung, faults.kill
