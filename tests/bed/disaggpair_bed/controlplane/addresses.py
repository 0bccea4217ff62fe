"""Ports and loopback addresses that belong to one bed.

Several beds can run on one machine. Ports are held open until the program that wants one
starts; the bed's part of 127.0.0.0/8 is held for its whole life by an abstract socket name,
which the kernel frees when the holder dies, however it dies.
"""

import errno
import socket
from collections.abc import Iterable

from disaggpair_bed.controlplane.errors import StartError

LOOPBACK = "127.0.0.1"

PREFIXES = tuple(f"127.{second}" for second in range(11, 251))
"""The parts that beds take, in order; 127.0 is everybody's."""


class Ports:
    """Free ports of 127.0.0.1, by the name of what will listen on them."""

    def __init__(self, names: Iterable[str]) -> None:
        self._held: dict[str, socket.socket] = {}
        for name in names:
            held = socket.socket()
            held.bind((LOOPBACK, 0))
            self._held[name] = held
        self._numbers = {name: held.getsockname()[1] for name, held in self._held.items()}

    def __getitem__(self, name: str) -> int:
        return int(self._numbers[name])

    def release(self, *names: str) -> None:
        """Let go of ports, right before their program starts; of all without names."""
        for name in names or tuple(self._held):
            if held := self._held.pop(name, None):
                held.close()


class LoopbackPrefix:
    """The first free prefix, such as 127.11, held until `release`.

    Raises:
        StartError: all of them are taken.
    """

    def __init__(self, prefixes: Iterable[str] = PREFIXES) -> None:
        for prefix in prefixes:
            held = socket.socket(socket.AF_UNIX)
            try:
                held.bind(f"\0disaggpair-bed/{prefix}")
            except OSError as error:
                held.close()
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                self._held = held
                self.text = prefix
                return
        raise StartError("every loopback prefix is taken by a running bed: stop one of them")

    def release(self) -> None:
        """Give the prefix back."""
        self._held.close()
