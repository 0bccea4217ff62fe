"""A P and a D of one release in one process, for scenes of turns."""

import contextlib
import copy
import socket
from typing import Any, Final

from disaggpair_bed.releases.stepped import Read, SteppedEngine, Worker

Json = dict[str, Any]

FIRST: Final = {"do_remote_decode": True, "do_remote_prefill": False}
"""The parameters of a first turn's P leg."""

ANSWER: Final = 41
"""Tokens of an answer that no scene says otherwise of."""


class Pair:
    """A P and a D in one process; each asks the other's listener through a socket."""

    def __init__(self, model: str) -> None:
        self.peers: dict[str, Worker] = {}
        ports = [{"lease_port": port} for port in _free_ports(2)]
        self.prefill = SteppedEngine(model, "kv_producer", self.peers, extra=ports[0])
        self.decode = SteppedEngine(model, "kv_consumer", self.peers, blocks=170, extra=ports[1])
        self._turns = 0

    def turn(
        self, prompt: list[int], handle: Json | None = None, answer: int = ANSWER
    ) -> tuple[Json, Json, Json | None]:
        """Both legs; what P was told to read, what D was, and D's handle."""
        self._turns += 1
        name = f"turn-{self._turns}"
        reads = len(self.prefill.worker.reads), len(self.decode.worker.reads)
        self.prefill.add(f"{name}-p", prompt, copy.deepcopy(handle or FIRST))
        self.prefill.run(f"{name}-p")
        offer = self.prefill.finished[f"{name}-p"]
        self.decode.add(f"{name}-d", prompt, copy.deepcopy(offer), max_tokens=answer)
        self.decode.run(f"{name}-d")
        self.settle()
        by_p = self.prefill.worker.reads[reads[0] :]
        by_d = self.decode.worker.reads[reads[1] :]
        return blocks_read(by_p), blocks_read(by_d), self.decode.finished[f"{name}-d"]

    def settle(self) -> None:
        """Let both come to rest, and notifications arrive."""
        for _ in range(3):
            self.decode.settle()
            self.prefill.settle()

    def free(self) -> Json:
        """Free blocks of both."""
        return {"p": self.prefill.free_blocks, "d": self.decode.free_blocks}

    def leases(self) -> int:
        """Blocks in leases that could be given up."""
        granted: int = self.decode.half._book.granted_blocks
        return granted

    def reading(self) -> int:
        """Leases that P has not read yet, or not given back."""
        count: int = self.decode.half._book.counts()["reading"]
        return count

    def forget(self) -> None:
        """Empty both prefix caches, and with them the leases."""
        for engine in (self.prefill, self.decode):
            assert engine.scheduler.reset_prefix_cache()


def blocks_read(reads: list[Read]) -> Json:
    """How many blocks were read in some reads, and which ones of the peer."""
    awaited = [read for read in reads if read.is_awaited]
    return {
        "blocks": sum(len(read.local_blocks) for read in awaited),
        "remote": [block for read in awaited for block in read.remote_blocks],
    }


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
