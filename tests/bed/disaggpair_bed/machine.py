"""What this machine has left: memory and disk, and how sizes are written."""

import re
import shutil
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def free_memory_bytes() -> int | None:
    """Memory that can still be taken; None if the machine does not say."""
    return available_bytes(
        read_text(Path("/proc/meminfo")),
        read_text(_CGROUP / "memory.max"),
        read_text(_CGROUP / "memory.current"),
    )


def available_bytes(meminfo: str, limit: str, current: str) -> int | None:
    """The smaller of what the machine has left and what its control group may still take.

    Args:
        meminfo: /proc/meminfo.
        limit: memory.max of the control group: a number, `max`, or empty if there is none.
        current: memory.current of the control group.
    """
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", meminfo, re.MULTILINE)
    bounds = [int(found[1]) * 1024] if found else []
    if limit.strip().isdigit() and current.strip().isdigit():
        bounds.append(int(limit) - int(current))
    return min(bounds, default=None)


def free_disk_bytes(folder: Path) -> int:
    """Free space where a folder is or would be."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def read_text(path: Path) -> str:
    """A file of the kernel's; empty when it is not there."""
    try:
        return path.read_text()
    except OSError:
        return ""


def gib(size_bytes: int) -> str:
    """A size for people."""
    return f"{size_bytes / (1 << 30):.1f} GiB"
