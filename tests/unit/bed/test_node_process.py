"""Real namespaces on this machine; skipped where it allows none."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from disaggpair_bed.node.errors import NoSandbox, StartError
from disaggpair_bed.node.logs import ContainerLog, LogQuery, read_log
from disaggpair_bed.node.mounts import Bind, plan_mounts
from disaggpair_bed.node.process import Exit, Launch, Process, ProcessRuntime
from disaggpair_bed.node.view import HostView

ENV = {"PATH": os.defpath, "GREETING": "hello"}


class Container:
    """Starts one shell command in a sandbox below a temporary directory."""

    def __init__(self, runtime: ProcessRuntime, directory: Path) -> None:
        self.runtime, self.directory = runtime, directory
        self.log = ContainerLog(directory / "log")

    async def start(self, script: str, *binds: Bind, argv: tuple[str, ...] = ()) -> Process:
        root = self.directory / "root"
        root.mkdir(exist_ok=True)
        launch = Launch(
            argv or ("sh", "-c", script),
            ENV,
            cwd="/",
            hostname="pod-1",
            root=root,
            ops=plan_mounts(binds, HostView()),
        )
        return await self.runtime.start(launch, self.log)

    async def output(self) -> list[str]:
        self.log.close()
        text = b"".join([piece async for piece in read_log(self.log, LogQuery())])
        return text.decode().splitlines()

    async def said(self, line: str) -> None:
        """Wait until the container has printed something."""
        async with asyncio.timeout(30):
            while line.encode() not in self.log.path.read_bytes():
                await self.log.changed()


@pytest.fixture(params=["as this user", "in a user namespace"])
async def container(request: pytest.FixtureRequest, tmp_path: Path) -> Container:
    try:
        plain = await ProcessRuntime.detect()
    except NoSandbox as exc:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(exc))
    if request.param == "as this user":
        return Container(plain, tmp_path)
    return Container(ProcessRuntime(user=True), tmp_path)


async def test_a_command_runs_with_its_environment_as_process_one(container: Container) -> None:
    process = await container.start("echo $GREETING $$ $(hostname); echo oops >&2; exit 3")
    assert await process.wait() == Exit(3)
    assert await container.output() == ["hello 1 pod-1", "oops"]


async def test_volumes_lie_where_they_belong_and_nowhere_else(container: Container) -> None:
    volume = container.directory / "volume"
    volume.mkdir()
    (volume / "token").write_text("secret\n")
    targets = ("/var/run/secrets/disaggpair", "/etc/disaggpair-test", "/disaggpair-models")
    binds = [Bind(str(volume), target, is_dir=True) for target in targets]
    process = await container.start(f"cat {' '.join(t + '/token' for t in targets)}", *binds)
    assert await process.wait() == Exit(0)
    assert await container.output() == ["secret"] * 3
    assert [HostView().kind(target) for target in targets] == [None] * 3


async def test_a_mirrored_directory_still_shows_the_hosts_files(container: Container) -> None:
    file = container.directory / "file"
    file.touch()
    bind = Bind(str(file), "/etc/disaggpair-test/file", is_dir=False)
    process = await container.start(
        "head -c 5 /etc/passwd; touch /etc/new-file; ls /dev/null", bind
    )
    assert await process.wait() == Exit(0)
    assert await container.output() == ["root:/dev/null"]
    assert HostView().kind("/etc/new-file") is None


async def test_a_read_only_volume_cannot_be_written(container: Container) -> None:
    volume = container.directory / "volume"
    volume.mkdir()
    bind = Bind(str(volume), "/run/disaggpair-test", is_dir=True, read_only=True)
    process = await container.start("touch /run/disaggpair-test/x", bind)
    assert (await process.wait()).code != 0
    assert list(volume.iterdir()) == []


async def test_a_write_to_a_volume_reaches_the_host(container: Container) -> None:
    message = container.directory / "message"
    message.touch()
    bind = Bind(str(message), "/dev/termination-log", is_dir=False)
    process = await container.start("echo done > /dev/termination-log", bind)
    assert await process.wait() == Exit(0)
    assert message.read_text() == "done\n"


async def test_a_signal_reaches_the_command_and_shows_in_its_end(container: Container) -> None:
    process = await container.start("trap 'exit 7' TERM; echo up; while :; do sleep 1; done")
    await container.said("up")
    process.signal(signal.SIGTERM)
    assert await process.wait() == Exit(7)
    process.signal(signal.SIGTERM)
    other = await container.start("sleep 600")
    other.signal(signal.SIGKILL)
    assert await other.wait() == Exit(137, signal.SIGKILL)


async def test_grandchildren_end_with_the_first_process(container: Container) -> None:
    fifo = container.directory / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        process = await container.start(f"setsid sleep 600 > {fifo} 2>&1 & sleep 0.1; exit 0")
        assert await process.wait() == Exit(0)
        # End of file: nobody holds the other end any more.
        assert os.read(reader, 1) == b""
    finally:
        os.close(reader)


async def test_a_command_runs_inside_a_running_container(container: Container) -> None:
    volume = container.directory / "volume"
    volume.mkdir()
    (volume / "x").write_text("inside")
    bind = Bind(str(volume), "/run/disaggpair-test", is_dir=True)
    process = await container.start("sleep 600", bind)
    code, text = await process.exec(
        ["sh", "-c", "cat /run/disaggpair-test/x; echo $GREETING; ls /proc/1/comm; exit 5"]
    )
    assert (code, text) == (5, "insidehello\n/proc/1/comm\n")
    with pytest.raises(StartError, match="exec 'nothing-such': No such file"):
        await process.exec(["nothing-such"])
    process.signal(signal.SIGKILL)
    await process.wait()
    with pytest.raises(StartError, match="has ended"):
        await process.exec(["true"])


async def test_a_cancelled_exec_leaves_nothing_behind(container: Container) -> None:
    process = await container.start("sleep 600")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await process.exec(["sleep", "601"])
    _, processes = await process.exec(["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"])
    assert "601" not in processes
    process.signal(signal.SIGKILL)
    await process.wait()


async def test_a_command_that_does_not_exist_is_a_start_error(container: Container) -> None:
    with pytest.raises(StartError, match="exec 'nothing-such': No such file or directory"):
        await container.start("", argv=("nothing-such",))


async def test_a_missing_volume_is_a_start_error(container: Container) -> None:
    bind = Bind(str(container.directory / "none"), "/run/disaggpair-test", is_dir=True)
    with pytest.raises(StartError, match="No such file or directory"):
        await container.start("true", bind)


_NODE = """
import asyncio, os, pathlib, sys
from disaggpair_bed.node.process import Launch, ProcessRuntime
from disaggpair_bed.node.logs import ContainerLog
from disaggpair_bed.node.mounts import plan_mounts
from disaggpair_bed.node.view import HostView

async def main():
    runtime = await ProcessRuntime.detect()
    directory = pathlib.Path(sys.argv[1])
    launch = Launch(
        ["sh", "-c", f"setsid sleep 600 > {directory}/fifo & wait"],
        {"PATH": os.defpath}, "/", root=directory, ops=plan_mounts([], HostView()),
    )
    await runtime.start(launch, ContainerLog(pathlib.Path(sys.argv[2])))
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_all_processes_die_with_a_node_that_is_killed(container: Container) -> None:
    fifo = container.directory / "fifo"
    os.mkfifo(fifo)
    (container.directory / "root").mkdir()
    node = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _NODE, str(container.directory), str(container.directory / "log2")
    )
    try:
        # Opening waits for the grandchild, reading for the end of everyone who has it open.
        with await asyncio.to_thread(open, fifo, "rb") as reader:
            node.kill()
            async with asyncio.timeout(30):
                assert await asyncio.to_thread(reader.read) == b""
    finally:
        if node.returncode is None:
            node.kill()
        await node.wait()
