"""Listening sockets that take all connections that wait, and not one in each round of the loop.

uvloop accepts a single connection in a round. While many turns run a round takes tens of
milliseconds, so of a hundred clients that come at once the last one would wait for seconds, and so
would a health check.
"""

import asyncio
import contextlib
import errno
import ipaddress
import logging
import socket
from collections.abc import Callable
from typing import Final

logger = logging.getLogger(__name__)

_BACKLOG: Final = 2048
_AT_ONCE: Final = 256
"""Connections taken in one round, so that those which are open are served meanwhile."""
_PAUSE_S: Final = 0.5
"""Without a free descriptor nothing can be taken; trying again at once would only spin."""
_UNAVAILABLE: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


class CannotListen(OSError):
    """A port cannot be opened; its text names the port, what it is of, and the address."""

    def __init__(self, what: str, host: str, port: int, error: OSError) -> None:
        super().__init__(error.errno, error.strerror)
        self._where = f"{what} on {host or 'all addresses'}, port {port}"

    def __str__(self) -> str:
        return f"cannot listen for {self._where}: {self.strerror}"


class Listener:
    """Takes connections from `start` until `stop`.

    Args:
        protocol: makes what serves one connection.
        what: what it is of, for the error of a port that cannot be opened.
    """

    def __init__(self, protocol: Callable[[], asyncio.BaseProtocol], what: str = "clients") -> None:
        self._protocol = protocol
        self._what = what
        self._sockets: list[socket.socket] = []
        self._taking: set[asyncio.Task[object]] = set()

    async def start(self, host: str, port: int, *, shared: bool = False) -> int:
        """Listen on a host, or on all addresses when it is empty; the port.

        A `shared` port may have listeners in other processes, too. Raises CannotListen.
        """
        try:
            return await self._start(host, port, shared)
        except OSError as error:
            raise CannotListen(self._what, host, port, error) from error

    async def _start(self, host: str, port: int, shared: bool) -> int:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        unavailable: OSError | None = None
        for family, _, _, _, address in found:
            try:
                one = _bound(family, (address[0], port, *address[2:]), shared)
            except OSError as error:
                if error.errno not in _UNAVAILABLE:
                    self.stop()
                    raise
                unavailable = error
                continue
            # Where any port was asked for, the other families get the same.
            port = one.getsockname()[1]
            self._sockets.append(one)
        if not self._sockets:
            raise unavailable or OSError(errno.EADDRNOTAVAIL, "no address")
        for one in self._sockets:
            loop.add_reader(one, self._take, one)
        return port

    def stop(self) -> None:
        """Take no more; those that wait are refused."""
        loop = asyncio.get_running_loop()
        for one in self._sockets:
            loop.remove_reader(one)
            one.close()
        self._sockets.clear()

    def _take(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(_AT_ONCE):
            try:
                connection, _ = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                logger.warning("no connection can be taken: %s", error.strerror)
                loop.remove_reader(listening)
                loop.call_later(_PAUSE_S, self._resume, listening)
                return
            connection.setblocking(False)
            task = loop.create_task(self._serve(connection))
            self._taking.add(task)
            task.add_done_callback(self._taking.discard)

    async def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):  # it has gone already
            await asyncio.get_running_loop().connect_accepted_socket(self._protocol, connection)

    def _resume(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            asyncio.get_running_loop().add_reader(listening, self._take, listening)


def loopback(host: str) -> str:
    """`host` where it is an address of the loopback interface, else that interface's usual one."""
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    return host if is_loopback else "127.0.0.1"


def _bound(family: int, address: tuple[object, ...], shared: bool) -> socket.socket:
    one = socket.socket(family, socket.SOCK_STREAM)
    try:
        if shared:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.setblocking(False)
        one.bind(address)
        one.listen(_BACKLOG)
    except OSError:
        one.close()
        raise
    return one
