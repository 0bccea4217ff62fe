from dataclasses import replace

import pytest

from disaggpair_bed.controlplane.prerequisites import (
    INSTEAD,
    Machine,
    parse_go_release,
    probe,
    space_fault,
    toolchain_fault,
)

GIB = 1 << 30
GOOD = Machine(
    system="linux",
    go="/opt/go/bin/go",
    go_release="go1.26.8",
    memory_bytes=8 * GIB,
    disk_bytes=50 * GIB,
)


def test_a_good_machine_has_no_fault() -> None:
    assert toolchain_fault(GOOD) is None
    assert space_fault(GOOD) is None


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (replace(GOOD, go=None, go_release=""), "go is not on PATH"),
        (replace(GOOD, go_release="go1.25.9"), "/opt/go/bin/go is go1.25.9"),
        (replace(GOOD, go_release=""), "a go without a version"),
    ],
)
def test_a_toolchain_fault_names_what_is_wrong_and_what_works_instead(
    machine: Machine, words: str
) -> None:
    sentence = toolchain_fault(machine)
    assert sentence is not None
    assert words in sentence
    assert "1.26" in sentence
    assert sentence.endswith(INSTEAD)


def test_another_system_is_refused_without_offering_own_binaries() -> None:
    sentence = toolchain_fault(replace(GOOD, system="darwin"))
    assert sentence is not None
    assert "darwin" in sentence
    assert "KUBEBUILDER_ASSETS" not in sentence


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (replace(GOOD, memory_bytes=3 * GIB), "3.0 GiB of memory"),
        (replace(GOOD, disk_bytes=GIB), "1.0 GiB of disk"),
    ],
)
def test_too_little_space_says_how_much_there_is_and_how_much_is_needed(
    machine: Machine, words: str
) -> None:
    sentence = space_fault(machine)
    assert sentence is not None
    assert words in sentence
    assert "needs 4.0 GiB" in sentence
    assert sentence.endswith(INSTEAD)


def test_unknown_memory_does_not_stop_a_build() -> None:
    assert space_fault(replace(GOOD, memory_bytes=None)) is None


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("go1.26.8", (1, 26)),
        ("go1.27rc1", (1, 27)),
        ("go2.0", (2, 0)),
        ("devel go1.28-abcdef", None),
        ("", None),
    ],
)
def test_go_releases_are_read(text: str, release: tuple[int, int] | None) -> None:
    assert parse_go_release(text) == release


def test_a_newer_major_release_of_go_is_accepted() -> None:
    assert toolchain_fault(replace(GOOD, go_release="go2.0")) is None


def test_a_machine_without_go_can_be_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    machine = probe()
    assert machine.go is None
    assert machine.go_release == ""
    assert machine.disk_bytes > 0
