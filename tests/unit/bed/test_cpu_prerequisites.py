"""The sentences for machines that cannot have CPU engines."""

from collections.abc import Callable
from typing import Any

import pytest

from disaggpair_bed.cpu import prerequisites
from disaggpair_bed.cpu.prerequisites import (
    Machine,
    has_flag,
    install_fault,
    machine_fault,
    start_fault,
)

GIB = 1 << 30
GOOD: dict[str, Any] = {
    "system": "linux",
    "architecture": "x86_64",
    "python": (3, 11),
    "has_avx2": True,
    "uv": "/usr/bin/uv",
    "memory_bytes": 8 * GIB,
    "disk_bytes": 7 * GIB,
}


@pytest.mark.parametrize("fault", [machine_fault, install_fault, start_fault])
def test_the_smallest_machine_will_do(fault: Callable[[Machine], str | None]) -> None:
    assert fault(Machine(**GOOD)) is None


@pytest.mark.parametrize(
    ("fault", "changes", "start"),
    [
        (machine_fault, {"system": "darwin"}, "CPU engines run on Linux on x86-64 and this is d"),
        (machine_fault, {"architecture": "aarch64"}, "CPU engines run on Linux on x86-64 and"),
        (machine_fault, {"has_avx2": False}, "This processor has no AVX2"),
        (machine_fault, {"python": (3, 10)}, "This is Python 3.10 and CPU engines need 3.11"),
        (install_fault, {"uv": None}, "uv is not on PATH"),
        (install_fault, {"disk_bytes": GIB}, "1.0 GiB of disk are free and CPU engines take 7.0"),
        (start_fault, {"memory_bytes": GIB}, "1.0 GiB of memory are free and a pair of CPU engin"),
    ],
)
def test_each_fault_says_what_lacks_and_what_works_instead(
    fault: Callable[[Machine], str | None], changes: dict[str, Any], start: str
) -> None:
    said = fault(Machine(**{**GOOD, **changes}))
    assert said is not None
    assert said.startswith(start)
    assert said.endswith("ENGINE=sim.")


def test_a_machine_that_hides_its_memory_may_start() -> None:
    assert start_fault(Machine(**{**GOOD, "memory_bytes": None})) is None


@pytest.mark.parametrize(
    ("cpuinfo", "found"),
    [
        ("flags\t\t: fpu avx avx2 sse\n", True),
        ("flags\t\t: fpu avx sse\nbugs: avx2\n", False),
        ("", False),
    ],
)
def test_avx2_is_read_from_the_processors_flags(cpuinfo: str, found: bool) -> None:
    assert has_flag(cpuinfo, "avx2") is found


def test_this_machine_can_be_read(tmp_path: Any) -> None:
    machine = prerequisites.probe(tmp_path / "not" / "there")
    assert machine.disk_bytes > 0
    assert machine.python >= (3, 11)
