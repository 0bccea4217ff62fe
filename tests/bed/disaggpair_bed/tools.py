"""Where the programs of the control plane are: the user's own, or those that we compile."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from disaggpair_bed.controlplane import build
from disaggpair_bed.controlplane.errors import PrerequisiteError
from disaggpair_bed.controlplane.progress import Say

OWN = "KUBEBUILDER_ASSETS"
"""Environment variable with the user's own folder of programs, as envtest has it."""

_FROM_PATH = ("kubectl", "helm")
"""Clients that may also come from PATH; the servers may not, since their release matters."""

_OPTIONAL = ("helm",)


@dataclass(frozen=True)
class Tools:
    """The programs by name."""

    programs: Mapping[str, Path]

    def __getitem__(self, name: str) -> Path:
        """The path of a program.

        Raises:
            PrerequisiteError: the user's own folder has none.
        """
        try:
            return self.programs[name]
        except KeyError:
            raise PrerequisiteError(f"{name} is neither in {OWN} nor on PATH") from None


def find_tools(say: Say, environment: Mapping[str, str] = os.environ) -> Tools:
    """All programs: from KUBEBUILDER_ASSETS if it is set, else compiled (once).

    Raises:
        PrerequisiteError: that folder lacks some, or the machine cannot compile them.
        BuildError: go failed.
    """
    if own := environment.get(OWN):
        return _own_tools(Path(own), environment.get("PATH"))
    folder = build.install(say)
    return Tools({name: folder / name for name in build.PROGRAMS})


def _own_tools(folder: Path, path: str | None) -> Tools:
    programs: dict[str, Path] = {}
    missing = []
    for name in build.PROGRAMS:
        search = [str(folder), path] if name in _FROM_PATH and path else [str(folder)]
        if found := shutil.which(name, path=os.pathsep.join(search)):
            programs[name] = Path(found)
        elif name not in _OPTIONAL:
            missing.append(name)
    if missing:
        raise PrerequisiteError(
            f"{OWN}={folder} lacks {_enumerate(missing)}: put them there (envtest archives bring "
            "etcd, kube-apiserver and kubectl only; the others are in Kubernetes' server "
            f"archive), or unset {OWN} to have all of them compiled by go."
        )
    return Tools(programs)


def _enumerate(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
