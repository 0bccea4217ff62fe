"""Kept connections to the engines, and what the head of a request says."""

import asyncio
import errno
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from disaggpair_router.wire import Connection

_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Unconnected(Exception):
    """There is no connection: nothing was sent."""


class NoRoom(Exception):
    """This process can open no more connections, which says nothing of the engine."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests of one base URL go."""

    host: str
    port: int
    is_tls: bool
    authority: str
    """Value of the Host header."""
    prefix: str
    """Path of the base URL, without a slash at its end."""


@lru_cache(maxsize=1024)
def target_of(url: str) -> Target:
    """The target of a base URL that the configuration has checked."""
    parts = urlsplit(url)
    is_tls = parts.scheme == "https"
    port = parts.port or (443 if is_tls else 80)
    return Target(parts.hostname or "", port, is_tls, parts.netloc, parts.path.rstrip("/"))


def request_head(method: str, target: Target, path: str, headers: Mapping[str, str]) -> bytes:
    """The head of a request; ValueError when a header's value could end it."""
    lines = [f"{method} {target.prefix}{path} HTTP/1.1", f"Host: {target.authority}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    head = "\r\n".join(lines)
    if head.count("\n") != len(lines) - 1 or head.count("\r") != len(lines) - 1:
        raise ValueError("a header holds a line end")
    return head.encode("latin-1") + b"\r\n\r\n"


class Pool:
    """Connections by target, the one used last first.

    Args:
        connect_s: limit for making one.
        idle_s: age at which one that nobody uses is not used again.
    """

    def __init__(self, *, connect_s: float, idle_s: float) -> None:
        self._connect_s = connect_s
        self._idle_s = idle_s
        self._idle: dict[Target, list[Connection]] = {}
        self._open: set[Connection] = set()
        self._tls: ssl.SSLContext | None = None

    async def take(self, target: Target) -> Connection:
        """A connection that can take a request; Unconnected or NoRoom when none can be made."""
        idle = self._idle.get(target)
        if idle:
            oldest = asyncio.get_running_loop().time() - self._idle_s
            while idle:
                connection = idle.pop()
                if connection.is_reusable and connection.idle_since > oldest:
                    return connection
                connection.close()
        return await self._made(target)

    def give(self, target: Target, connection: Connection) -> None:
        """Take a connection back; one that cannot be used again is dropped."""
        if not connection.is_reusable:
            connection.close()
            return
        connection.idle_since = asyncio.get_running_loop().time()
        self._idle.setdefault(target, []).append(connection)

    def close(self) -> None:
        """Drop all connections."""
        for connection in tuple(self._open):
            connection.close()

    async def _made(self, target: Target) -> Connection:
        loop = asyncio.get_running_loop()
        if target.is_tls and self._tls is None:
            self._tls = ssl.create_default_context()

        def lost() -> None:
            self._open.discard(connection)
            idle = self._idle.get(target, [])
            if connection in idle:
                idle.remove(connection)
            if not idle:
                self._idle.pop(target, None)

        connection = Connection(lost)
        tls = self._tls if target.is_tls else None
        try:
            async with asyncio.timeout(self._connect_s):
                await loop.create_connection(lambda: connection, target.host, target.port, ssl=tls)
        except OSError as error:  # TimeoutError is one
            raise (NoRoom if error.errno in _EXHAUSTED else Unconnected) from None
        self._open.add(connection)
        return connection
