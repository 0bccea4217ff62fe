from collections.abc import Iterable
from pathlib import Path

import pytest

from disaggpair_bed.controlplane import build
from disaggpair_bed.controlplane.errors import PrerequisiteError
from disaggpair_bed.tools import find_tools

ENVTEST = ("etcd", "kube-apiserver", "kubectl")


def silent(line: str) -> None:
    raise AssertionError(f"nothing is built, so nothing is to be said: {line}")


def put(folder: Path, programs: Iterable[str]) -> Path:
    folder.mkdir()
    for name in programs:
        (folder / name).touch(mode=0o755)
    return folder


def test_own_programs_are_taken_when_all_are_there(tmp_path: Path) -> None:
    own = put(tmp_path / "own", build.PROGRAMS)
    tools = find_tools(silent, {"KUBEBUILDER_ASSETS": str(own), "PATH": ""})
    assert {name: tools[name] for name in build.PROGRAMS} == {
        name: own / name for name in build.PROGRAMS
    }


def test_a_folder_of_envtest_lacks_the_controllers(tmp_path: Path) -> None:
    own = put(tmp_path / "own", ENVTEST)
    with pytest.raises(
        PrerequisiteError, match="lacks kube-controller-manager and kube-scheduler: "
    ):
        find_tools(silent, {"KUBEBUILDER_ASSETS": str(own), "PATH": ""})


def test_clients_may_come_from_path_and_servers_may_not(tmp_path: Path) -> None:
    servers = [name for name in build.PROGRAMS if name not in ("kubectl", "helm", "etcd")]
    own = put(tmp_path / "own", servers)
    other = put(tmp_path / "other", ["kubectl", "helm", "etcd"])
    with pytest.raises(PrerequisiteError, match="lacks etcd: "):
        find_tools(silent, {"KUBEBUILDER_ASSETS": str(own), "PATH": str(other)})
    put(tmp_path / "more", ["etcd"]).joinpath("etcd").rename(own / "etcd")
    tools = find_tools(silent, {"KUBEBUILDER_ASSETS": str(own), "PATH": str(other)})
    assert tools["helm"] == other / "helm"
    assert tools["kubectl"] == other / "kubectl"


def test_a_missing_helm_is_told_when_it_is_used(tmp_path: Path) -> None:
    own = put(tmp_path / "own", [name for name in build.PROGRAMS if name != "helm"])
    tools = find_tools(silent, {"KUBEBUILDER_ASSETS": str(own), "PATH": ""})
    with pytest.raises(PrerequisiteError, match="helm is neither in KUBEBUILDER_ASSETS nor"):
        tools["helm"]


def test_without_own_programs_they_are_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "install", lambda say: tmp_path)
    tools = find_tools(silent, {})
    assert tools["etcd"] == tmp_path / "etcd"
