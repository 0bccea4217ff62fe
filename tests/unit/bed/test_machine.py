"""What a machine has left, and where things are kept on it."""

import subprocess
import sys
from pathlib import Path

import pytest

from disaggpair_bed.cache import cache_root, held
from disaggpair_bed.machine import available_bytes, free_disk_bytes, free_memory_bytes


@pytest.mark.parametrize(
    ("limit", "current", "available"),
    [("max\n", "5\n", 2048), ("1500\n", "500\n", 1000), ("9000\n", "0\n", 2048), ("", "", 2048)],
)
def test_a_control_group_can_only_lower_what_is_available(
    limit: str, current: str, available: int
) -> None:
    meminfo = "MemTotal:       16 kB\nMemAvailable:   2 kB\n"
    assert available_bytes(meminfo, limit, current) == available


@pytest.mark.parametrize("meminfo", ["", "MemTotal: 16 kB\n"])
def test_without_any_information_nothing_is_assumed(meminfo: str) -> None:
    assert available_bytes(meminfo, "", "") is None


def test_this_machine_can_be_read(tmp_path: Path) -> None:
    assert free_disk_bytes(tmp_path / "not" / "there") > 0
    assert (free_memory_bytes() or 1) > 0


@pytest.mark.parametrize("value", ["", "relative/cache"])
def test_a_cache_home_that_is_not_absolute_is_void(value: str) -> None:
    expected = Path.home() / ".cache" / "disaggpair"
    assert cache_root({"XDG_CACHE_HOME": value}) == cache_root({}) == expected
    assert cache_root({"XDG_CACHE_HOME": "/c"}) == Path("/c/disaggpair")


def test_a_lock_that_somebody_holds_is_waited_for_and_said(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    program = (
        "import fcntl, sys\nfile = open(sys.argv[1], 'w')\n"
        "fcntl.flock(file, fcntl.LOCK_EX)\nprint('held', flush=True)\nsys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == b"held\n"
        said: list[str] = []

        def say(line: str) -> None:
            said.append(line)
            assert other.stdin is not None
            other.stdin.close()  # which ends the other holder

        with held(path, say, "somebody builds"):
            assert said == ["somebody builds"]
