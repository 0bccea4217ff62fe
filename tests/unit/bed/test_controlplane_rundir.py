import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from disaggpair_bed.controlplane.down import stop_supervisor
from disaggpair_bed.controlplane.errors import RunDirError
from disaggpair_bed.controlplane.rundir import RunDir, live_supervisor

HOLD = """
import signal, sys, time
from pathlib import Path
from disaggpair_bed.controlplane.rundir import RunDir
if sys.argv[2] == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
held = RunDir(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""

Holder = subprocess.Popen[str]


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def holder(run_dir: Path, request: pytest.FixtureRequest) -> Iterator[Holder]:
    """Another process that holds the run folder."""
    temper = getattr(request, "param", "gentle")
    command = [sys.executable, "-c", HOLD, str(run_dir), temper]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_new_folder_is_made(run_dir: Path) -> None:
    held = RunDir(run_dir / "deeper")
    assert held.path.is_dir()
    held.release()


def test_what_a_dead_bed_left_is_removed(run_dir: Path) -> None:
    RunDir(run_dir).release()
    (run_dir / "pki").mkdir()
    (run_dir / "pki" / "ca.crt").touch()
    (run_dir / "link").symlink_to(run_dir.parent)
    (run_dir / "admin.kubeconfig").touch()
    RunDir(run_dir).release()
    assert [entry.name for entry in run_dir.iterdir()] == ["bed.lock"]
    assert run_dir.parent.is_dir()


def test_a_folder_with_other_things_is_refused_and_left_alone(run_dir: Path) -> None:
    run_dir.mkdir()
    (run_dir / "thesis.tex").touch()
    with pytest.raises(RunDirError, match="neither empty nor the folder of a bed"):
        RunDir(run_dir)
    assert [entry.name for entry in run_dir.iterdir()] == ["thesis.tex"]


def test_a_live_bed_keeps_its_folder(run_dir: Path, holder: Holder) -> None:
    (run_dir / "admin.kubeconfig").touch()
    with pytest.raises(RunDirError, match=rf"a bed is running in .*\(process {holder.pid}\)"):
        RunDir(run_dir)
    assert (run_dir / "admin.kubeconfig").exists()


def test_the_supervisor_is_known_while_it_lives(run_dir: Path, holder: Holder) -> None:
    assert live_supervisor(run_dir) == holder.pid
    holder.kill()
    holder.wait()
    assert live_supervisor(run_dir) is None


def test_a_folder_that_is_not_there_has_no_supervisor(run_dir: Path) -> None:
    assert live_supervisor(run_dir) is None
    assert stop_supervisor(run_dir, patience_s=1) is False


def test_a_process_that_inherited_the_number_of_a_dead_supervisor_is_left_alone(
    run_dir: Path, holder: Holder
) -> None:
    stale = run_dir.parent / "stale"
    RunDir(stale).release()
    (stale / "bed.lock").write_text(f"{holder.pid}\n")
    assert stop_supervisor(stale, patience_s=1) is False
    assert holder.poll() is None


def test_a_supervisor_is_stopped(run_dir: Path, holder: Holder) -> None:
    assert stop_supervisor(run_dir, patience_s=30) is True
    assert holder.wait(1) == -15


@pytest.mark.parametrize("holder", ["stubborn"], indirect=True)
def test_a_supervisor_that_does_not_end_is_killed(run_dir: Path, holder: Holder) -> None:
    assert stop_supervisor(run_dir, patience_s=0.1) is True
    assert holder.wait(30) == -9
