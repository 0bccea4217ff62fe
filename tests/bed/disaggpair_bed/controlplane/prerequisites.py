"""What a machine must have to build the control plane, and the sentence if it has not.

`probe` reads the machine; `toolchain_fault` and `space_fault` judge what it read and are pure.
They are two because a control plane that is built already needs the first only.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from disaggpair_bed.machine import free_disk_bytes, free_memory_bytes, gib

GO_VERSION = (1, 26)
"""Oldest Go release that compiles Kubernetes 1.36."""

BUILD_MEMORY_BYTES = 4 << 30
"""Free memory that the compiler and the linker want."""

BUILD_DISK_BYTES = 4 << 30
"""Module cache 0.75 GB and build cache 2.8 GB; the binary itself is 0.15 GB."""

INSTEAD = (
    "Or set KUBEBUILDER_ASSETS to a folder with your own etcd, kube-apiserver, "
    "kube-controller-manager, kube-scheduler and kubectl: then nothing is compiled."
)


@dataclass(frozen=True)
class Machine:
    """What the faults are found in."""

    system: str
    """`sys.platform`."""
    go: str | None
    """Path of the go command, None if PATH has none."""
    go_release: str
    """What `go env GOVERSION` prints, such as go1.26.8; empty if it printed nothing."""
    memory_bytes: int | None
    """Memory that can still be taken, None if the machine does not say."""
    disk_bytes: int
    """Free space where go keeps its build cache."""


def toolchain_fault(machine: Machine) -> str | None:
    """One sentence on why this machine cannot have a compiled control plane, or None."""
    wanted = ".".join(map(str, GO_VERSION))
    if not machine.system.startswith("linux"):
        return (
            f"The test bed runs on Linux and this is {machine.system}: use a Linux machine or "
            "container."
        )
    if machine.go is None:
        return (
            f"go is not on PATH: the control plane is compiled once, by Go {wanted} or newer. "
            f"{INSTEAD}"
        )
    release = parse_go_release(machine.go_release)
    if release is None or release < GO_VERSION:
        found = machine.go_release or "a go without a version"
        return f"{machine.go} is {found}: the control plane needs Go {wanted} or newer. {INSTEAD}"
    return None


def space_fault(machine: Machine) -> str | None:
    """One sentence on the memory or the disk that a compilation lacks, or None."""
    if machine.memory_bytes is not None and machine.memory_bytes < BUILD_MEMORY_BYTES:
        return (
            f"{gib(machine.memory_bytes)} of memory are free: compiling the control plane needs "
            f"{gib(BUILD_MEMORY_BYTES)}. {INSTEAD}"
        )
    if machine.disk_bytes < BUILD_DISK_BYTES:
        return (
            f"{gib(machine.disk_bytes)} of disk are free where go keeps its build cache: "
            f"compiling the control plane needs {gib(BUILD_DISK_BYTES)}. {INSTEAD}"
        )
    return None


def probe() -> Machine:
    """Read this machine."""
    go = shutil.which("go")
    release, cache = _go_environment(go) if go else ("", "")
    return Machine(
        system=sys.platform,
        go=go,
        go_release=release,
        memory_bytes=free_memory_bytes(),
        disk_bytes=free_disk_bytes(Path(cache or Path.home())),
    )


def parse_go_release(text: str) -> tuple[int, int] | None:
    """Major and minor of go1.26.8 or go1.27rc1; None for anything else (a devel build)."""
    found = re.match(r"go(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None


def _go_environment(go: str) -> tuple[str, str]:
    """GOVERSION and GOCACHE; GOTOOLCHAIN=local keeps go from fetching another release."""
    done = subprocess.run(
        [go, "env", "GOVERSION", "GOCACHE"],
        capture_output=True,
        text=True,
        cwd="/",
        env={**os.environ, "GOTOOLCHAIN": "local"},
        check=False,
    )
    release, _, cache = done.stdout.strip().partition("\n")
    return release, cache
