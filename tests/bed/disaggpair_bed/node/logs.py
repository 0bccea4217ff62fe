"""Container logs on disk, in the line format of container runtimes, and reading them again.

Each line is `TIME stdout F TEXT`; P instead of F marks a piece of a line that goes on. stdout and
stderr share one pipe, which keeps their order. A log is not rotated: it lives as long as its pod.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

_PIECE = 16 * 1024
"""Longest piece of a line, in bytes."""
_READ = 64 * 1024


def timestamp(now: datetime) -> str:
    """RFC 3339 with nanoseconds, as kubectl expects in logs."""
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")


class ContainerLog:
    """The log of one run of a container; written by its node, read by any number of followers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1
        path.touch()
        self._rest = b""
        self._news = asyncio.Event()
        self.closed = False

    def feed(self, data: bytes) -> None:
        """Append what the container wrote."""
        stamp = timestamp(datetime.now(UTC)).encode()
        *lines, rest = (self._rest + data).split(b"\n")
        out = [self._entry(stamp, line, b"F") for line in lines]
        while len(rest) >= _PIECE:
            out.append(self._entry(stamp, rest[:_PIECE], b"P"))
            rest = rest[_PIECE:]
        self._rest = rest
        self._write(b"".join(out))

    def close(self) -> None:
        """Write what is left and wake the followers; nothing is fed afterwards."""
        if self.closed:
            return
        if self._rest:
            self._write(self._entry(timestamp(datetime.now(UTC)).encode(), self._rest, b"F"))
        self.closed = True
        if self._fd >= 0:
            os.close(self._fd)
        self._news.set()

    async def changed(self) -> None:
        """Return after the next write."""
        await self._news.wait()

    @staticmethod
    def _entry(stamp: bytes, line: bytes, tag: bytes) -> bytes:
        return b"%s stdout %s %s\n" % (stamp, tag, line)

    def _write(self, data: bytes) -> None:
        if data:
            if self._fd < 0:
                # Not before the first output: a hollow node has thousands of silent containers.
                self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND)
            os.write(self._fd, data)
            self._news.set()
            self._news = asyncio.Event()


@dataclass(frozen=True)
class LogQuery:
    """What a client of the log endpoint asks for; None leaves a bound out."""

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None
    since: datetime | None = None


def select(lines: list[bytes], query: LogQuery) -> list[bytes]:
    """The text of the lines a query wants, without its bound on bytes. Pure."""
    if query.since is not None:
        first = timestamp(query.since).encode()
        lines = [line for line in lines if line.split(b" ", 1)[0] >= first]
    if query.tail_lines is not None:
        lines = lines[-query.tail_lines :] if query.tail_lines else []
    return [_text(line, query.timestamps) for line in lines]


def _text(line: bytes, timestamps: bool) -> bytes:
    stamp, _, tag, text = line.split(b" ", 3)
    return (stamp + b" " if timestamps else b"") + text + (b"\n" if tag == b"F" else b"")


async def read_log(log: ContainerLog, query: LogQuery) -> AsyncIterator[bytes]:
    """What the query asks for, piece by piece; with `follow` until the container has ended."""
    left = query.limit_bytes
    with log.path.open("rb") as file:
        first, rest = True, b""
        while True:
            news = asyncio.ensure_future(log.changed())
            closed = log.closed
            try:
                while data := file.read(-1 if first else _READ):
                    *lines, rest = (rest + data).split(b"\n")
                    wanted = query if first else LogQuery(timestamps=query.timestamps)
                    first = False
                    out = b"".join(select(lines, wanted))
                    if left is not None:
                        out, left = out[:left], left - len(out[:left])
                    if out:
                        yield out
                    if left == 0:
                        return
                if not query.follow or closed:
                    return
                await news
            finally:
                news.cancel()


def tail_text(log: Path, lines: int = 80, limit_bytes: int = 2048) -> str:
    """The end of a log as a termination message, within the kubelet's bounds."""
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - 16 * limit_bytes))
        found = file.read().split(b"\n")[:-1]
    text = b"".join(
        select([line for line in found if line.count(b" ") >= 3], LogQuery(tail_lines=lines))
    )
    return text[-limit_bytes:].decode(errors="replace")


def since(seconds: int | None, time: str | None, now: datetime) -> datetime | None:
    """The bound that `sinceSeconds` or `sinceTime` of a request stand for."""
    if seconds is not None:
        return now - timedelta(seconds=seconds)
    return datetime.fromisoformat(time) if time else None
