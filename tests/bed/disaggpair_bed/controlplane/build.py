"""Compile the control plane once and keep it outside the tree, by content.

The folder is `${XDG_CACHE_HOME:-~/.cache}/disaggpair/controlplane/<key>/`, with one binary and
a link to it for each program. The key covers all that decides the binary, so a changed go.mod
gets a folder of its own and two checkouts with the same one share it.
"""

import hashlib
import os
import platform
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from disaggpair_bed.cache import cache_root, held
from disaggpair_bed.controlplane import prerequisites
from disaggpair_bed.controlplane.errors import PrerequisiteError
from disaggpair_bed.controlplane.progress import Say, compile_module

PROGRAMS = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
    "helm",
)
"""The names under which the one binary can be called."""

SOURCE = Path(__file__).resolve().parents[2] / "controlplane"
"""The Go module, a neighbour of this distribution's import package."""

_BINARY = "controlplane"
_WAITING = "control plane: another process is building it, waiting for it"
_INPUTS = ("go.mod", "go.sum", "main.go")


def install(say: Say) -> Path:
    """The folder with all programs, compiled now if it is not there.

    Two callers at once are safe: the second waits and finds the work of the first.

    Raises:
        PrerequisiteError: the machine cannot compile it.
        BuildError: go failed.
    """
    machine = prerequisites.probe()
    if fault := prerequisites.toolchain_fault(machine):
        raise PrerequisiteError(fault)
    assert machine.go is not None
    inputs = {name: (SOURCE / name).read_bytes() for name in _INPUTS}
    flags = build_flags(inputs["go.mod"].decode())
    key = build_key(inputs, flags, machine.go_release, _platform())
    folder = cache_root(os.environ) / "controlplane" / key
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with held(folder.parent / "lock", say, _WAITING):
        if not folder.is_dir():
            if fault := prerequisites.space_fault(machine):
                raise PrerequisiteError(fault)
            _build(machine.go, flags, folder, say)
    return folder


def build_flags(go_mod: str) -> tuple[str, ...]:
    """The flags of `go build`; without the version, kubectl and Helm cannot parse the server's."""
    release = kubernetes_release(go_mod)
    major, minor, _ = release.removeprefix("v").split(".", 2)
    variables = {"gitVersion": release, "gitMajor": major, "gitMinor": minor}
    stamps = [f"-X k8s.io/component-base/version.{key}={text}" for key, text in variables.items()]
    return ("-mod=readonly", "-buildvcs=false", "-ldflags", " ".join(["-s", "-w", *stamps]))


def kubernetes_release(go_mod: str) -> str:
    """The release of k8s.io/kubernetes that a go.mod requires, such as v1.36.3."""
    found = re.search(r"^\s*k8s\.io/kubernetes (v\d+\.\d+\.\S+)", go_mod, re.MULTILINE)
    if found is None:
        raise ValueError("go.mod requires no release of k8s.io/kubernetes")
    return found[1]


def build_key(
    inputs: Mapping[str, bytes], flags: Sequence[str], go_release: str, system: str
) -> str:
    """The name of the folder: a digest of all that decides the binary."""
    digest = hashlib.sha256()
    for name, content in sorted(inputs.items()):
        digest.update(f"{name} {len(content)}\n".encode() + content)
    digest.update("\n".join(["", *flags, go_release, system]).encode())
    return digest.hexdigest()


def _platform() -> str:
    return f"linux/{platform.machine()}"


def _build(go: str, flags: Sequence[str], folder: Path, say: Say) -> None:
    """Build next to the folder and rename, so that a folder that exists is complete."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="building-") as scratch:
        made = Path(scratch) / "made"
        made.mkdir()
        compile_module(go, SOURCE, [*flags, "-o", str(made / _BINARY)], say)
        for program in PROGRAMS:
            (made / program).symlink_to(_BINARY)
        made.rename(folder)
    size_mb = (folder / _BINARY).stat().st_size / 1e6
    say(f"control plane: {size_mb:.0f} MB in {folder}")
