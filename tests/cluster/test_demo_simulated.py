"""The demo with simulated engines, and what it leaves behind."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = [sys.executable, "-m", "disaggpair_bed.cli", "demo", "--engine", "sim"]


def processes_of(folder: Path) -> list[str]:
    """Command lines of processes that mention a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if str(folder) in line:
                found.append(line)
    return found


@pytest.mark.timeout(300)
def test_the_demo_shows_kv_that_moved_and_leaves_no_process(tmp_path: Path) -> None:
    done = subprocess.run(
        [*DEMO, "--run-dir", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads((tmp_path / "demo.json").read_text())
    assert record["ok"] is True
    assert all(turn["read_from_d"] > 0 for turn in record["turns"][1:])
    assert "read from D" in done.stdout
    assert processes_of(tmp_path) == []


@pytest.mark.timeout(300)
def test_an_interrupted_demo_leaves_no_process(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*DEMO, "--run-dir", str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "kubectl apply" in line:
                demo.send_signal(signal.SIGINT)
                break
        demo.stdout.read()
        assert demo.wait(timeout=120) == 130
    assert processes_of(tmp_path) == []
