"""A bed leaves nothing behind, however it ends."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from disaggpair_bed.cluster import DEFAULT_NODES, Cluster
from disaggpair_bed.controlplane import flags
from disaggpair_bed.controlplane.errors import ProcessDiedError, RunDirError, ToolError
from disaggpair_bed.controlplane.images import OPERATOR
from disaggpair_bed.controlplane.rundir import live_supervisor
from disaggpair_bed.tools import find_tools

PROGRAMS = ["etcd", "apiserver", "controller-manager", "scheduler"]
PATIENCE_S = 30.0


@pytest.fixture(scope="session", autouse=True)
def programs(say: Callable[[str], None]) -> None:
    """Compile before any test starts a cluster under its own time limit."""
    find_tools(say)


def processes_of(run_dir: Path) -> list[str]:
    """Command lines that name the run folder, apart from this process."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if str(run_dir) in command:
            found.append(command)
    return found


def bed(*args: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "disaggpair_bed.cli", *args]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=250)


def wait_until(condition: Callable[[], bool], describe: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, describe()
        time.sleep(0.05)


def test_a_stopped_cluster_leaves_no_process_and_no_port(tmp_path: Path) -> None:
    with Cluster(tmp_path / "run") as cluster:
        assert [process.name for process in cluster.processes] == PROGRAMS
        assert len(processes_of(cluster.run_dir)) == len(PROGRAMS)
        port = urlsplit(cluster.server).port
    assert processes_of(cluster.run_dir) == []
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", port))
        again.listen()


def test_a_cluster_defends_its_folder_and_tells_who_died(tmp_path: Path) -> None:
    with Cluster(tmp_path / "run") as cluster:
        with pytest.raises(RunDirError, match="a bed is running in"):
            Cluster(tmp_path / "run").start()
        cluster.check()

        etcd = cluster.processes[0]
        assert etcd.pid is not None
        os.kill(etcd.pid, signal.SIGKILL)
        with pytest.raises(ProcessDiedError, match="etcd ended by itself with signal SIGKILL"):
            cluster.wait()
    assert processes_of(cluster.run_dir) == []


def test_a_failed_start_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server refuses a flag, etcd runs by then."""
    good = flags.apiserver
    monkeypatch.setattr(flags, "apiserver", lambda *args: [*good(*args), "--no-such-flag"])
    with pytest.raises(ProcessDiedError, match=r"apiserver ended by itself(.|\n)*no-such-flag"):
        Cluster(tmp_path / "run").start()
    assert processes_of(tmp_path / "run") == []
    assert live_supervisor(tmp_path / "run") is None


def test_up_stays_until_down(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    up = bed("up", "--no-nodes", "--run-dir", str(run_dir))
    try:
        assert up.returncode == 0, up.stdout
        assert f"export KUBECONFIG={run_dir}/admin.kubeconfig" in up.stdout
        kubectl = [str(run_dir / "bin/kubectl"), f"--kubeconfig={run_dir}/admin.kubeconfig"]
        subprocess.run([*kubectl, "get", "namespace", "default"], check=True, capture_output=True)

        again = bed("up", "--no-nodes", "--run-dir", str(run_dir))
        assert again.returncode == 1
        assert "a bed is running in" in again.stdout
    finally:
        down = bed("down", "--run-dir", str(run_dir))
    assert down.stdout.startswith("bed: stopped")
    assert processes_of(run_dir) == []
    assert bed("down", "--run-dir", str(run_dir)).stdout.startswith("bed: none was running")


def test_a_killed_supervisor_takes_all_with_it_and_the_folder_is_free(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    up = bed("up", "--run-dir", str(run_dir))
    assert up.returncode == 0, up.stdout
    assert up.stdout.count("p5en.48xlarge") == len(DEFAULT_NODES)
    supervisor = live_supervisor(run_dir)
    assert supervisor is not None
    start_pod_of_two_processes(run_dir)

    os.kill(supervisor, signal.SIGKILL)
    wait_until(lambda: processes_of(run_dir) == [], lambda: processes_of(run_dir))
    with Cluster(run_dir) as cluster:
        assert "default" in cluster.kubectl("get", "namespaces")


def start_pod_of_two_processes(run_dir: Path) -> None:
    """A container whose process has a child; both name the run folder."""
    nested = "sh -c 'sleep 3600; :' \"$0\"; :"
    command = ["run", "idle", f"--image={OPERATOR}", "--restart=Never", "--command", "--"]
    environment = {**os.environ, "KUBECONFIG": str(run_dir / "admin.kubeconfig")}
    subprocess.run(
        [str(run_dir / "bin/kubectl"), *command, "sh", "-c", nested, str(run_dir)],
        env=environment,
        check=True,
        capture_output=True,
    )
    wait_until(
        lambda: sum("sleep 3600" in line for line in processes_of(run_dir)) >= 2,
        lambda: (run_dir / "logs" / "nodes.log").read_text(),
    )


def test_a_failed_call_tells_what_the_client_said(cluster: Cluster) -> None:
    with pytest.raises(ToolError, match=r'kubectl get pod absent: .*"absent" not found'):
        cluster.kubectl("get", "pod", "absent")
