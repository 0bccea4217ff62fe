import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from disaggpair_bed.controlplane import tether
from disaggpair_bed.controlplane.errors import ProcessDiedError
from disaggpair_bed.processes import Process, ProcessGroup, describe_exit, tail

SLEEP = "import time; print('up', flush=True); time.sleep(60)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEP}"

SUPERVISOR = """
import sys, time
from pathlib import Path
from disaggpair_bed.processes import Process
child = Process("child", [sys.executable, "-c", sys.argv[1]], Path(sys.argv[2]))
child.start()
print(child.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def group() -> Iterator[ProcessGroup]:
    group = ProcessGroup()
    yield group
    group.stop()


def python(name: str, code: str, folder: Path, patience_s: float = 30.0) -> Process:
    command = [sys.executable, "-c", code]
    return Process(name, command, folder / f"{name}.log", patience_s=patience_s)


def wait_for_log(process: Process, text: str) -> None:
    """Return when the process has said something; the test's timeout is the bound."""
    while text not in process.log.read_text():
        process.check()
        select.select([], [], [], 0.01)


def test_a_process_writes_to_its_log(tmp_path: Path, group: ProcessGroup) -> None:
    code = "import sys; print('out'); print('err', file=sys.stderr)"
    process = group.start(python("p", code, tmp_path))
    with pytest.raises(ProcessDiedError):
        group.wait()
    assert sorted(process.log.read_text().split()) == ["err", "out"]


def test_the_end_of_a_process_is_told_with_its_name_status_and_last_lines(
    tmp_path: Path, group: ProcessGroup
) -> None:
    group.start(python("steady", SLEEP, tmp_path))
    group.start(python("weak", "print('cannot bind'); raise SystemExit(3)", tmp_path))
    with pytest.raises(
        ProcessDiedError, match=r"weak ended by itself with status 3(.|\n)*cannot bind"
    ):
        group.wait()


def test_a_running_process_passes_the_check(tmp_path: Path, group: ProcessGroup) -> None:
    process = group.start(python("p", SLEEP, tmp_path))
    group.check()
    assert process.running


def test_a_group_stops_in_the_reverse_order(tmp_path: Path, group: ProcessGroup) -> None:
    order = tmp_path / "order"
    for name in ("first", "second", "third"):
        code = (
            "import signal, sys, time\n"
            "def end(*_):\n"
            f"    open({str(order)!r}, 'a').write('{name} ')\n"
            "    sys.exit()\n"
            "signal.signal(signal.SIGTERM, end)\n"
            f"{SLEEP}"
        )
        wait_for_log(group.start(python(name, code, tmp_path)), "up")
    group.stop()
    assert order.read_text().split() == ["third", "second", "first"]
    assert list(group) == []


def test_a_process_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    process = python("p", STUBBORN, tmp_path, patience_s=0.1)
    process.start()
    wait_for_log(process, "up")
    process.stop()
    assert not process.running


def test_stopping_what_never_started_or_ended_already_is_nothing(tmp_path: Path) -> None:
    python("never", SLEEP, tmp_path).stop()
    ended = python("ended", "", tmp_path)
    ended.start()
    ended.stop()
    ended.stop()
    assert not ended.running


def test_a_child_dies_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "child.log"
    command = [sys.executable, "-c", SUPERVISOR, STUBBORN, str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        child = os.pidfd_open(int(supervisor.stdout.readline()))
        try:
            supervisor.kill()
            supervisor.wait()
            poller = select.poll()
            poller.register(child, select.POLLIN)
            assert poller.poll(30_000)
        finally:
            os.close(child)


def test_a_child_whose_parent_died_before_the_tie_does_not_start(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    nobody = "1" if os.getpid() != 1 else "2"
    command = [sys.executable, tether.__file__, nobody, "/bin/sh", "-c", f"touch {marker}"]
    assert subprocess.run(command, check=False).returncode == 1
    assert not marker.exists()


def test_a_process_is_out_of_reach_of_the_terminals_interrupt(
    tmp_path: Path, group: ProcessGroup
) -> None:
    process = group.start(python("p", SLEEP, tmp_path))
    wait_for_log(process, "up")
    assert process.pid is not None
    assert os.getsid(process.pid) == process.pid


def test_a_start_from_another_thread_is_refused(tmp_path: Path) -> None:
    process = python("p", SLEEP, tmp_path)
    errors: list[Exception] = []

    def start() -> None:
        try:
            process.start()
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert "main thread" in str(errors[0])
    assert process.pid is None


def test_return_codes_are_told_in_words() -> None:
    assert describe_exit(2) == "status 2"
    assert describe_exit(-signal.SIGKILL) == "signal SIGKILL"


def test_the_tail_of_a_log_is_its_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"line {number}\n" for number in range(100_000)))
    assert tail(log, lines=2) == "    line 99998\n    line 99999"
