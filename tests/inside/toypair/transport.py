"""What NIXL does for vLLM's worker, between memories of one process.

A read copies when it is let through, which is at once unless it is held, and tells its owner then;
a read that is released before has copied nothing.
"""

import ctypes
import itertools
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal

State = Literal["PROC", "DONE", "ERR"]


@dataclass(eq=False)
class Read:
    """One read: where from, where to, and whom it tells."""

    handle: int
    reader: str
    owner: str
    pieces: list[tuple[int, int, int]]
    """Address here, address there, bytes."""
    notification: bytes
    state: State = "PROC"


class Fabric:
    """All agents, and what becomes of their reads."""

    def __init__(self) -> None:
        self.agents: dict[str, ToyAgent] = {}
        self.reads: dict[int, Read] = {}
        self.hold: Callable[[Read], bool] = lambda read: False
        """Whether a new read waits for `let_through`."""
        self.is_stuck = False
        """Whether a read that is under way cannot be released."""
        self.loses_notifications = False
        self.done: list[Read] = []

    def waiting(self) -> list[Read]:
        """Reads under way, oldest first."""
        return [read for read in self.reads.values() if read.state == "PROC"]

    def let_through(self, read: Read) -> None:
        """Copy, and tell the owner."""
        owner = self.agents.get(read.owner)
        if owner is None:
            read.state = "ERR"
            return
        for here, there, size in read.pieces:
            assert owner.has(there, size), "a read outside of what is registered"
            ctypes.memmove(here, there, size)
        read.state = "DONE"
        self.done.append(read)
        self.tell(read.reader, read.owner, read.notification)

    def fail(self, read: Read) -> None:
        """End a read without a copy."""
        read.state = "ERR"

    def tell(self, sender: str, receiver: str, notification: bytes) -> None:
        """Send a notification, unless these get lost."""
        if not self.loses_notifications and receiver in self.agents:
            self.agents[receiver].inbox[sender].append(notification)


FABRIC = Fabric()
"""The one of this process."""


class ToyAgent:
    """In the place of a NIXL agent, with what vLLM calls of it.

    Args:
        name: of the agent.
        config: of NIXL's; not looked at.
    """

    _numbers = itertools.count(1)

    def __init__(self, name: str, config: Any = None) -> None:
        self.name = name
        self.inbox: dict[str, list[bytes]] = defaultdict(list)
        self._ranges: list[tuple[int, int]] = []
        self._lists: dict[int, tuple[str, Any]] = {}
        FABRIC.agents[name] = self

    def has(self, address: int, size: int) -> bool:
        """Whether this memory is registered."""
        return any(
            start <= address and address + size <= start + length for start, length in self._ranges
        )

    def close(self) -> None:
        """Be gone, as after a crash."""
        FABRIC.agents.pop(self.name, None)

    # What vLLM calls.

    def get_reg_descs(self, ranges: list[tuple[int, int, int, str]], kind: str) -> Any:
        return ranges

    def register_memory(self, descs: Any, backends: Any = None) -> None:
        self._ranges += [(start, length) for start, length, *_ in descs]

    def deregister_memory(self, descs: Any) -> None:
        self._ranges = []

    def get_agent_metadata(self) -> bytes:
        return self.name.encode()

    def add_remote_agent(self, metadata: bytes) -> str:
        return metadata.decode()

    def remove_remote_agent(self, name: str) -> None:
        pass

    def check_remote_metadata(self, name: str) -> bool:
        return name in FABRIC.agents

    def get_xfer_descs(self, blocks: Any, kind: str) -> Any:
        return blocks

    def prep_xfer_dlist(self, agent: str, descs: Any) -> int:
        number = next(self._numbers)
        self._lists[number] = (agent, descs)
        return number

    def release_dlist_handle(self, handle: int) -> None:
        self._lists.pop(handle, None)

    def make_prepped_xfer(
        self,
        kind: str,
        here: int,
        here_ids: Any,
        there: int,
        there_ids: Any,
        notif_msg: bytes = b"",
    ) -> int:
        assert kind == "READ"
        assert len(here_ids) == len(there_ids)
        owner, remote = self._lists[there]
        _, local = self._lists[here]
        pieces = []
        for mine, theirs in zip(here_ids, there_ids, strict=True):
            assert local[mine][1] == remote[theirs][1]
            pieces.append((int(local[mine][0]), int(remote[theirs][0]), int(local[mine][1])))
        number = next(self._numbers)
        FABRIC.reads[number] = Read(number, self.name, owner, pieces, notif_msg)
        return number

    def transfer(self, handle: int) -> str:
        read = FABRIC.reads[handle]
        if not FABRIC.hold(read):
            FABRIC.let_through(read)
        return read.state

    def check_xfer_state(self, handle: int) -> State:
        return FABRIC.reads[handle].state

    def get_xfer_telemetry(self, handle: int) -> Any:
        pieces = FABRIC.reads[handle].pieces
        size = sum(size for _, _, size in pieces)
        return SimpleNamespace(
            xferDuration=10, postDuration=1, totalBytes=size, descCount=len(pieces)
        )

    def release_xfer_handle(self, handle: int) -> None:
        read = FABRIC.reads[handle]
        if read.state == "PROC" and FABRIC.is_stuck:
            raise RuntimeError("the read is under way")
        del FABRIC.reads[handle]

    def send_notif(self, agent: str, notif_msg: bytes = b"") -> None:
        if agent not in FABRIC.agents:
            raise RuntimeError("there is no such agent")
        FABRIC.tell(self.name, agent, notif_msg)

    def get_new_notifs(self) -> dict[str, list[bytes]]:
        found, self.inbox = self.inbox, defaultdict(list)
        return found
