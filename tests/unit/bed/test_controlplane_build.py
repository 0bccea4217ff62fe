import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from disaggpair_bed.cache import cache_root
from disaggpair_bed.controlplane import build, prerequisites, progress
from disaggpair_bed.controlplane.errors import BuildError, PrerequisiteError

INPUTS = {"go.mod": b"module m\n", "go.sum": b"sum\n", "main.go": b"package main\n"}
FLAGS = ("-ldflags", "-s")

FAKE_GO = """#!/bin/sh
case "$1" in
env) echo go1.26.8; echo /nowhere;;
list) echo "go: downloading m v1" >&2; echo a; echo b; echo c;;
build)
    echo "$@" >> "$FAKE_GO_CALLS"
    echo package/a >&2
    test -z "$FAKE_GO_FAULT" || { echo "$FAKE_GO_FAULT" >&2; exit 1; }
    while [ "$1" != -o ]; do shift; done
    echo binary > "$2";;
esac
"""


class FakeGo:
    """A `go` on PATH that answers at once and writes its builds down."""

    def __init__(self, folder: Path) -> None:
        self.calls = folder / "calls"
        self.calls.touch()
        program = folder / "go"
        program.write_text(FAKE_GO)
        program.chmod(0o755)

    @property
    def builds(self) -> list[str]:
        return self.calls.read_text().splitlines()


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGo:
    folder = tmp_path / "go"
    folder.mkdir()
    fake = FakeGo(folder)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("FAKE_GO_CALLS", str(fake.calls))
    monkeypatch.delenv("FAKE_GO_FAULT", raising=False)
    monkeypatch.setattr(prerequisites, "space_fault", lambda machine: None)
    return fake


def test_every_input_decides_the_key() -> None:
    base = build.build_key(INPUTS, FLAGS, "go1.26.8", "linux/x86_64")
    changed = [
        build.build_key({**INPUTS, name: b"other"}, FLAGS, "go1.26.8", "linux/x86_64")
        for name in INPUTS
    ]
    changed.append(build.build_key(INPUTS, ("-s",), "go1.26.8", "linux/x86_64"))
    changed.append(build.build_key(INPUTS, FLAGS, "go1.26.9", "linux/x86_64"))
    changed.append(build.build_key(INPUTS, FLAGS, "go1.26.8", "linux/aarch64"))
    assert len({base, *changed}) == 1 + len(changed)


def test_the_key_does_not_depend_on_the_order_of_the_inputs() -> None:
    reordered = dict(reversed(INPUTS.items()))
    one, other = (build.build_key(inputs, FLAGS, "go", "linux") for inputs in (INPUTS, reordered))
    assert one == other


def test_the_binary_says_the_release_that_go_mod_requires() -> None:
    flags = build.build_flags("require (\n\tk8s.io/kubernetes v1.36.3\n)\n")
    assert "-X k8s.io/component-base/version.gitVersion=v1.36.3" in flags[-1]
    assert "gitMajor=1 " in flags[-1]
    assert flags[-1].endswith("gitMinor=36")


def test_a_go_mod_without_kubernetes_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no release of k8s\.io/kubernetes"):
        build.build_flags("module m\n")


def test_staging_modules_are_of_the_release_of_kubernetes() -> None:
    go_mod = (build.SOURCE / "go.mod").read_text()
    minor_and_patch = build.kubernetes_release(go_mod).removeprefix("v1.")
    block = go_mod.split("replace (")[1].split(")")[0]
    replaced = {line.split()[0]: line.split()[-1] for line in block.strip().splitlines()}
    assert "k8s.io/kubectl" in replaced
    assert set(replaced.values()) == {f"v0.{minor_and_patch}"}


def test_the_binary_is_built_once_and_has_a_link_for_each_program(go: FakeGo) -> None:
    folder = build.install(lambda line: None)
    assert build.install(lambda line: None) == folder
    assert len(go.builds) == 1
    assert {(folder / name).read_text() for name in build.PROGRAMS} == {"binary\n"}


def test_nothing_is_left_of_a_failed_build(go: FakeGo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_GO_FAULT", "main.go:1: syntax error")
    with pytest.raises(BuildError, match=r"go build failed:(.|\n)*main\.go:1: syntax error"):
        build.install(lambda line: None)
    left = [entry.name for entry in (cache_root(os.environ) / "controlplane").iterdir()]
    assert left == ["lock"]


def test_two_builders_at_once_build_once(go: FakeGo) -> None:
    call = "from disaggpair_bed.controlplane import build, prerequisites\n"
    call += "prerequisites.space_fault = lambda machine: None\n"
    call += "build.install(lambda line: None)"
    builders = [subprocess.Popen([sys.executable, "-c", call]) for _ in range(2)]
    assert [builder.wait(60) for builder in builders] == [0, 0]
    assert len(go.builds) == 1


def test_without_go_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(PrerequisiteError, match="go is not on PATH"):
        build.install(lambda line: None)


def test_too_little_memory_stops_a_build_but_not_the_use_of_an_old_one(
    go: FakeGo, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = build.install(lambda line: None)
    monkeypatch.setattr(prerequisites, "space_fault", lambda machine: "no memory")
    assert build.install(lambda line: None) == folder
    monkeypatch.setattr(build, "cache_root", lambda environment: folder.parent / "fresh")
    with pytest.raises(PrerequisiteError, match="no memory"):
        build.install(lambda line: None)


def test_progress_counts_packages_and_shows_what_is_fetched() -> None:
    counter = progress.Counter(total=3)
    assert str(counter) == "starting"
    counter.read(["go: downloading m v1\n"])
    assert str(counter) == "go: downloading m v1"
    counter.read(["package/a\n", "package/b\n"])
    assert str(counter) == "2 of at most 3 packages compiled, now package/b"


def test_a_long_build_says_how_far_it_is(
    go: FakeGo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `go build` that ends when progress was shown: the test ends too if it was not."""
    shown = threading.Event()
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    (tmp_path / "go" / "go").write_text(f'#!/bin/sh\n[ "$1" = list ] || cat "{gate}"\n')
    monkeypatch.setattr(progress, "INTERVAL_S", 0.05)
    lines = []

    def say(line: str) -> None:
        lines.append(line)
        if " s, " in line and not shown.is_set():
            shown.set()
            gate.write_text("package/a\n")

    progress.compile_module(str(tmp_path / "go" / "go"), tmp_path, [], say)
    assert any("starting" in line for line in lines)


def test_settings_of_go_that_change_the_binary_are_overruled() -> None:
    given = {"GOFLAGS": "-mod=vendor", "GOPROXY": "https://proxy.test", "CGO_ENABLED": "1"}
    environment = progress.go_environment(given)
    assert environment["GOFLAGS"] == ""
    assert environment["CGO_ENABLED"] == "0"
    assert environment["GOPROXY"] == "https://proxy.test"
