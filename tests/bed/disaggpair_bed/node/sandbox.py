"""The child's side of `process`: makes the namespaces of a container and runs its command.

Run as a script with the standard library alone, since it starts with every container:

    sandbox.py SPEC_FD REPORT_FD

SPEC_FD holds a JSON object, see `main`. REPORT_FD is a socket. A zero byte on it carries a PID
file descriptor of the container's first process; text is what kept its command from starting, and
end of file without text means that the command runs. The descriptor is made here, before the
process is waited for: by the time the node reads a PID, a short command may have ended.

This process stays as the parent of the container's first process, which is PID 1 of a PID
namespace: when either dies, the kernel kills everything in the container. It ends as the command
ended, by the same exit status or the same signal.
"""

import ctypes
import json
import os
import resource
import select
import signal
import socket
import sys
from typing import Any, NoReturn

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
MNT_DETACH = 2
PR_SET_PDEATHSIG = 1
# statvfs flags that a remount in a user namespace must repeat, and their mount counterparts.
_KEPT = {
    os.ST_NOSUID: 2,
    os.ST_NODEV: 4,
    os.ST_NOEXEC: 8,
    os.ST_NOATIME: 1024,
    os.ST_RELATIME: 1 << 21,
}

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *args: Any) -> None:
    coded = [arg.encode() if isinstance(arg, str) else arg for arg in args]
    if getattr(_libc, name)(*coded) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}{args}: {os.strerror(code)}")


def _mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    _call("mount", source, target, kind, ctypes.c_ulong(flags), data)


def _die_with_parent() -> None:
    _call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL)


def _new_namespaces(user: bool) -> None:
    uid, gid = os.getuid(), os.getgid()
    flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUTS
    _call("unshare", flags | CLONE_NEWUSER if user else flags)
    if user:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{uid} {uid} 1"),
            ("gid_map", f"{gid} {gid} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)


def _build_root(root: str, ops: list[list[str]]) -> None:
    """Carry out the steps of `mounts`, then make `root` the root directory."""
    _mount("none", "/", None, MS_REC | MS_PRIVATE)
    for op, path, source in ops:
        here = root + path if path != "/" else root
        _STEPS[op](here, source)
    try:
        _mount("proc", root + "/proc", "proc", 0)
    except OSError:
        # A host that hides parts of /proc allows no fresh one in a user namespace. The host's
        # works too, only that it numbers processes as the host does.
        _mount("/proc", root + "/proc", None, MS_BIND | MS_REC)
    os.chdir(root)
    _call("pivot_root", ".", ".")
    _call("umount2", ".", MNT_DETACH)
    os.chdir("/")


def _bind(here: str, source: str) -> None:
    _mount(source, here, None, MS_BIND | MS_REC)


def _mirror(here: str, source: str) -> None:
    # Listed by the node a moment ago; a temporary file may be gone by now.
    if os.path.lexists(source):
        _bind(here, source)


def _tmpfs(here: str, source: str) -> None:
    _mount("tmpfs", here, "tmpfs", 0, "mode=0755")


def _dir(here: str, source: str) -> None:
    os.makedirs(here, exist_ok=True)


def _file(here: str, source: str) -> None:
    os.makedirs(os.path.dirname(here), exist_ok=True)
    if not os.path.lexists(here):
        os.close(os.open(here, os.O_CREAT | os.O_WRONLY, 0o644))


def _link(here: str, source: str) -> None:
    os.symlink(source, here)


def _readonly(here: str, source: str) -> None:
    kept = os.statvfs(here).f_flag
    flags = sum(flag for bit, flag in _KEPT.items() if kept & bit)
    _mount("none", here, None, MS_REMOUNT | MS_BIND | MS_RDONLY | flags)


_STEPS = {
    "bind": _bind,
    "mirror": _mirror,
    "tmpfs": _tmpfs,
    "dir": _dir,
    "file": _file,
    "link": _link,
    "readonly": _readonly,
}


def _exec(spec: dict[str, Any]) -> NoReturn:
    os.setsid()
    os.chdir(spec["cwd"])
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    try:
        os.execvpe(spec["argv"][0], spec["argv"], spec["env"])
    except OSError as exc:
        raise OSError(exc.errno, f"exec {spec['argv'][0]!r}: {exc.strerror}") from exc


def _end_like(status: int) -> NoReturn:
    """End as the child did, so that the node needs no second way to learn of it."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def main() -> NoReturn:
    """Spec: node (PID), user (bool), argv, env, cwd; either root, ops and hostname for a new
    container, or enter (a PID file descriptor) for a command inside a running one."""
    spec_fd, report_fd = int(sys.argv[1]), int(sys.argv[2])
    with open(spec_fd) as file:
        spec = json.load(file)
    report = socket.socket(fileno=report_fd)
    report.set_inheritable(False)
    # The node addresses the command itself; this process only outlives it. The signals stay
    # blocked, not ignored, because a program inherits what is ignored.
    signal.pthread_sigmask(
        signal.SIG_SETMASK, {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}
    )
    try:
        if "enter" in spec:
            flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUTS
            _call("setns", spec["enter"], flags | CLONE_NEWUSER if spec["user"] else flags)
            os.close(spec["enter"])
        else:
            _new_namespaces(spec["user"])
        # After the namespaces: a change of credentials clears the setting.
        _die_with_parent()
        if os.getppid() != spec["node"]:
            os._exit(1)
        alive_r, alive_w = os.pipe()
        child = os.fork()
    except OSError as exc:
        report.send(f"{exc.strerror}".encode())
        os._exit(128)
    if child == 0:
        try:
            os.close(alive_w)
            _die_with_parent()
            # In a new PID namespace the parent's PID reads as 0, dead or alive; the pipe tells.
            if select.select([alive_r], [], [], 0)[0]:
                os._exit(1)
            if "enter" not in spec:
                _build_root(spec["root"], spec["ops"])
                socket.sethostname(spec["hostname"])
            _exec(spec)
        except OSError as exc:
            report.send(f"{exc.strerror}".encode())
        os._exit(128)
    socket.send_fds(report, [b"\0"], [os.pidfd_open(child)])
    report.close()
    _end_like(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    main()
