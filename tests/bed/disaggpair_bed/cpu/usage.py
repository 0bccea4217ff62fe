"""What a process and all below it take of the machine, from /proc."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
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


def process_tree(pid: int) -> list[int]:
    """A process and all its descendants that live, parents before children."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (stat := _stat(int(entry.name))):
            children.setdefault(int(stat[1]), []).append(int(entry.name))
    found = [pid] if _stat(pid) else []
    for member in found:  # grows while it is walked
        found += children.get(member, [])
    return found


def usage(pid: int) -> list[Usage]:
    """What each process of a tree has taken so far; one that ends meanwhile is left out."""
    return list(_read(process_tree(pid)))


def _read(pids: list[int]) -> Iterator[Usage]:
    for pid in pids:
        stat = _stat(pid)
        if stat:
            # utime and stime, fields 14 and 15 of proc(5); the list begins with field 3.
            cpu_s = (int(stat[11]) + int(stat[12])) / _TICKS_PER_S
            yield Usage(pid, _name(pid), cpu_s, _memory_bytes(pid))


def _stat(pid: int) -> list[str]:
    """The fields after the command, which may hold spaces and brackets; empty if it is gone."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return []
    fields = text.rpartition(")")[2].split()
    return [] if fields[0] == "Z" else fields


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
