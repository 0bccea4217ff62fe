"""Containers as local processes. `sandbox` is the child's side, this module the node's.

`Runtime` has two implementations: `ProcessRuntime`, and `HollowRuntime`, which runs nothing.
"""

import asyncio
import json
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from disaggpair_bed.node import sandbox
from disaggpair_bed.node.errors import NoSandbox, StartError
from disaggpair_bed.node.logs import ContainerLog
from disaggpair_bed.node.mounts import Op, plan_mounts
from disaggpair_bed.node.view import HostView

_OUTPUT_LIMIT = 8 * 1024


@dataclass(frozen=True)
class Launch:
    """Everything a container's process needs."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    hostname: str = "localhost"
    root: Path = Path("/")
    """An empty directory of the node, the mount point of the container's root."""
    ops: Sequence[Op] = ()


@dataclass(frozen=True)
class Exit:
    """How a container ended; `code` is 128 plus the signal when it was killed by one."""

    code: int
    signal: int = 0


class Process(Protocol):
    """A container that was started."""

    async def wait(self) -> Exit:
        """Wait for its end; may be called any number of times."""
        ...

    def signal(self, number: int) -> None:
        """Send a signal to its first process; nothing happens when it has ended."""
        ...

    async def exec(self, argv: Sequence[str]) -> tuple[int, str]:
        """Run a command inside; its exit code and the beginning of its output."""
        ...


class Runtime(Protocol):
    """Starts containers."""

    async def start(self, launch: Launch, log: ContainerLog) -> Process:
        """Start one; raises StartError when its command cannot be executed."""
        ...


class ProcessRuntime:
    """Starts each container in namespaces of its own; `user` adds a user namespace."""

    def __init__(self, user: bool) -> None:
        self.user = user

    @classmethod
    async def detect(cls) -> "ProcessRuntime":
        """The way that works for this user on this machine; NoSandbox when none does."""
        errors = []
        with tempfile.TemporaryDirectory(prefix="disaggpair-probe-") as root:
            ops = plan_mounts([], HostView())
            launch = Launch(["true"], {"PATH": os.defpath}, "/", root=Path(root), ops=ops)
            for user in (False, True):
                runtime = cls(user)
                log = ContainerLog(Path(os.devnull))
                try:
                    process = await runtime.start(launch, log)
                    if (await process.wait()).code == 0:
                        return runtime
                    errors.append("its command failed")
                except StartError as exc:
                    errors.append(str(exc))
                finally:
                    log.close()
        raise NoSandbox(
            "process nodes need root with CAP_SYS_ADMIN or unprivileged user namespaces "
            f"(kernel.unprivileged_userns_clone, AppArmor): {'; '.join(errors)}"
        )

    async def start(self, launch: Launch, log: ContainerLog) -> Process:
        spec = _common(launch.argv, launch.env, launch.cwd, self.user) | {
            "hostname": launch.hostname,
            "root": str(launch.root),
            "ops": [[op["op"], op["path"], op["source"]] for op in map(asdict, launch.ops)],
        }
        child, pid = await _spawn(spec, ())
        return _LocalProcess(child, pid, launch, self.user, log)


class _LocalProcess:
    def __init__(
        self,
        child: asyncio.subprocess.Process,
        pidfd: int,
        launch: Launch,
        user: bool,
        log: ContainerLog,
    ) -> None:
        self._child, self._pidfd, self._launch, self._user = child, pidfd, launch, user
        self._end = asyncio.create_task(self._collect(log))

    async def wait(self) -> Exit:
        return await asyncio.shield(self._end)

    def signal(self, number: int) -> None:
        if self._pidfd >= 0:
            try:
                signal.pidfd_send_signal(self._pidfd, number)
            except ProcessLookupError:
                return

    async def exec(self, argv: Sequence[str]) -> tuple[int, str]:
        if self._pidfd < 0:
            raise StartError("the container has ended")
        spec = _common(argv, self._launch.env, self._launch.cwd, self._user)
        child, pidfd = await _spawn(spec | {"enter": self._pidfd}, (self._pidfd,))
        output = b""
        assert child.stdout is not None
        try:
            while data := await child.stdout.read(4096):
                output = (output + data)[:_OUTPUT_LIMIT]
            return await child.wait(), output.decode(errors="replace")
        finally:
            os.close(pidfd)
            if child.returncode is None:
                child.kill()
                await child.wait()

    async def _collect(self, log: ContainerLog) -> Exit:
        assert self._child.stdout is not None
        while data := await self._child.stdout.read(65536):
            log.feed(data)
        code = await self._child.wait()
        os.close(self._pidfd)
        self._pidfd = -1
        return Exit(code) if code >= 0 else Exit(128 - code, -code)


class HollowRuntime:
    """Containers that run until they are stopped, without a process."""

    async def start(self, launch: Launch, log: ContainerLog) -> Process:
        return _HollowProcess()


class _HollowProcess:
    def __init__(self) -> None:
        self._stopped = asyncio.Event()
        self._exit = Exit(0)

    async def wait(self) -> Exit:
        await self._stopped.wait()
        return self._exit

    def signal(self, number: int) -> None:
        if number in (signal.SIGTERM, signal.SIGKILL) and not self._stopped.is_set():
            self._exit = Exit(0) if number == signal.SIGTERM else Exit(128 + number, number)
            self._stopped.set()

    async def exec(self, argv: Sequence[str]) -> tuple[int, str]:
        return 0, ""


def _common(argv: Sequence[str], env: Mapping[str, str], cwd: str, user: bool) -> dict[str, Any]:
    return {"node": os.getpid(), "user": user, "argv": list(argv), "env": dict(env), "cwd": cwd}


async def _spawn(
    spec: Mapping[str, Any], fds: Sequence[int]
) -> tuple[asyncio.subprocess.Process, int]:
    """Start the sandbox; the child and a PID file descriptor of the command's first process."""
    ours, theirs = socket.socketpair()
    with ours, theirs, tempfile.TemporaryFile() as file:
        file.write(json.dumps(spec).encode())
        file.seek(0)
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-S",
            sandbox.__file__,
            str(file.fileno()),
            str(theirs.fileno()),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            pass_fds=(file.fileno(), theirs.fileno(), *fds),
            start_new_session=True,
            env={},
        )
        theirs.close()
        pidfd: int | None = None
        try:
            pidfd, error = await _report(ours)
            if pidfd is not None and not error:
                return child, pidfd
        except BaseException:
            child.kill()
            await child.communicate()
            raise
    output, _ = await child.communicate()
    if pidfd is not None:
        os.close(pidfd)
    # A sandbox that fails without a report has left a traceback.
    raise StartError(error or output.decode(errors="replace").strip())


async def _report(sock: socket.socket) -> tuple[int | None, str]:
    """Read the sandbox's report to its end: the descriptor, if any, and the error, if any."""
    pidfd, text = None, b""
    sock.setblocking(False)
    while True:
        try:
            data, fds, _, _ = socket.recv_fds(sock, 4096, 1)
        except BlockingIOError:
            await _readable(sock)
            continue
        pidfd = fds[0] if fds else pidfd
        text += data
        if not data:
            return pidfd, text.replace(b"\0", b"").decode(errors="replace")


async def _readable(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(sock, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sock)
