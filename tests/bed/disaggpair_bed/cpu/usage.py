"""The processes of a session: what they take of the machine, and the end of all of them.

An engine is a session. Its core and its worker outlive an API server that is killed or gives up,
and keep its ports.
"""

import contextlib
import os
import re
import select
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_KILLED_WITHIN_S = 10.0

# Fields of /proc/PID/stat, from the third one on, which is the state.
_STATE, _SESSION, _USER_TIME, _SYSTEM_TIME = 0, 3, 11, 12
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """One process at one moment."""

    pid: int
    name: str
    """As the kernel calls it; vLLM names its engine cores and workers."""
    cpu_s: float
    """Processor time since its start, of all its threads."""
    memory_bytes: int
    """Resident memory with an equal share of what it shares with others; 0 if unreadable."""


def session_members(leader: int) -> list[int]:
    """All processes of the session that a process leads or led, oldest first.

    A session outlives its leader, and its number is not given to another process before its last
    member ended.
    """
    found = []
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            stat = _stat(int(entry.name))
            if stat and int(stat[_SESSION]) == leader:
                found.append(int(entry.name))
    return sorted(found)


def kill_session(leader: int) -> None:
    """SIGKILL for all members of a session; returns when they have ended."""
    while members := session_members(leader):
        with contextlib.ExitStack() as held:
            for member in members:
                with contextlib.suppress(ProcessLookupError):
                    descriptor = os.pidfd_open(member)
                    held.callback(os.close, descriptor)
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                    held.callback(select.select, [descriptor], [], [], _KILLED_WITHIN_S)


def usage(leader: int) -> list[Usage]:
    """What each member of a session has taken so far; one that ends meanwhile is left out."""
    return list(_read(session_members(leader)))


def _read(pids: list[int]) -> Iterator[Usage]:
    for pid in pids:
        stat = _stat(pid)
        if stat:
            cpu_s = (int(stat[_USER_TIME]) + int(stat[_SYSTEM_TIME])) / _TICKS_PER_S
            yield Usage(pid, _name(pid), cpu_s, _memory_bytes(pid))


def _stat(pid: int) -> list[str]:
    """The fields after the command, which may hold spaces and brackets; empty if it is gone."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return []
    fields = text.rpartition(")")[2].split()
    return [] if fields[_STATE] == "Z" else fields


def _name(pid: int) -> str:
    """`VLLM::Worker` and the like where a process gave itself such a title, else its program."""
    try:
        title = (_PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""
    first, *rest = title.strip("\0").split("\0")
    words = first.split()
    name = Path(words[0]).name if words else ""
    return f"{name} {Path(rest[0]).name}" if rest and name.startswith("python") else name


def _memory_bytes(pid: int) -> int:
    try:
        rollup = (_PROC / str(pid) / "smaps_rollup").read_text()
    except OSError:
        return 0
    found = re.search(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0
