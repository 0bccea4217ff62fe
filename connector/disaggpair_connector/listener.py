"""D's lease listener: where a router finds and claims leases, and a P redeems them.

Each thread accepts a connection and answers on it until it ends; none is the scheduler's, and what
they share with the scheduler is the book. A client can hold up nobody: its connection is bounded in
time, and a watch has no queue, for the book keeps the last events and each watch reads them at
its own pace.
"""

import contextlib
import logging
import os
import socket
import threading
import time
from typing import Final

from disaggpair_connector import contract
from disaggpair_connector.book import LeaseBook
from disaggpair_connector.errors import ConfigError
from disaggpair_connector.listener_clients import Clients
from disaggpair_connector.listener_connection import Connection, Limits, Lost
from disaggpair_connector.listener_http import LAST_CHUNK, STREAM_HEAD, Refused, chunk
from disaggpair_connector.listener_routes import Routes, Watch
from disaggpair_connector.refusals import Refusals
from disaggpair_connector.table import Gone

_BACKLOG: Final = 128
_STOP_S: Final = 5.0
_SPARE: Final = 3
"""Threads that wait for a connection, so that a new one is answered without a start of one."""

_LINES: Final = 256
"""Events in one piece of a watch."""

_FULL: Final = Refused(503, "busy", "There are too many connections.", close=True).answer()
_FAULT: Final = Refused(500, "internal", "The listener failed.", close=True).answer()


class LeaseListener:
    """An HTTP server over a book, from `start` until `stop`.

    Args:
        book: the leases; `stop` closes it.
        host: address to listen on, or a name for one.
        port: 0 for any.
        key: bearer key of the router; None or empty refuses what needs it.
        block_size: tokens per block, for readers.
        read_s: seconds that readers are told to have.
        limits: of connections and times.
        refusals: how fast it refuses.
        log: for faults of ours; nothing of a request is written.
    """

    def __init__(
        self,
        book: LeaseBook,
        *,
        host: str,
        port: int,
        key: str | None,
        block_size: int,
        read_s: float,
        limits: Limits | None = None,
        refusals: Refusals | None = None,
        log: logging.Logger | None = None,
    ) -> None:
        self._refusals = refusals or Refusals(time.monotonic)
        self._limits = limits or Limits()
        self._book = book
        self._host = host
        self._log = log or logging.getLogger(__name__)
        self._routes = Routes(book, key=key, lease_port=port, block_size=block_size, read_s=read_s)
        self._clients = Clients(self._limits.connections)
        self._watches = threading.BoundedSemaphore(self._limits.watches)
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._free = 0  # threads that wait for a connection, or will
        self._stopping = threading.Event()
        self._socket: socket.socket | None = None
        self.address = ""
        """Where it listens, as a URL names it; empty before `start`."""

    def start(self) -> int:
        """Listen, and return the port.

        Raises:
            ConfigError: the address cannot be listened on.
        """
        listening = listening_socket(self._host, self._routes.lease_port)
        self._socket = listening
        host, port = listening.getsockname()[:2]
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._routes.lease_port = port
        self._grow(_SPARE)
        return int(port)

    def stop(self) -> None:
        """End all connections and threads; the port is free then."""
        self._stopping.set()
        self._book.close()
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # wakes the threads in accept()
        self._clients.shut()
        with self._lock:
            threads = [thread for thread in self._threads if thread.is_alive()]
        end = time.monotonic() + _STOP_S
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
        if self._socket is not None:
            self._socket.close()

    def _grow(self, spare: int) -> None:
        """Let so many threads be free. They stay: as many as there were connections at a time."""
        while True:
            with self._lock:
                if self._free >= spare or self._stopping.is_set():
                    return
                name = f"disaggpair-leases-{len(self._threads)}"
                thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._threads.append(thread)
                self._free += 1
            try:
                thread.start()
            except RuntimeError:  # the system has no more; those that answer come back
                with self._lock:
                    self._threads.remove(thread)
                    self._free -= 1
                return

    def _run(self) -> None:
        assert self._socket is not None
        while not self._stopping.is_set():
            try:
                sock, _ = self._socket.accept()
            except OSError:  # no descriptors are left, or the client is gone already
                self._stopping.wait(0.1)
                continue
            with self._lock:
                self._free -= 1
            try:
                self._grow(1)
                self._admit(Connection(sock, self._limits))
            except Exception:
                self._log.exception("A connection to the lease listener failed")
            finally:
                with self._lock:
                    self._free += 1

    def _admit(self, connection: Connection) -> None:
        if self._clients.admit(connection):
            self._serve(connection)
        else:
            connection.refuse(_FULL)

    def _serve(self, connection: Connection) -> None:
        try:
            while connection.wait() and self._clients.begin(connection):
                if not self._answer(connection):
                    connection.linger()
                    break
                self._clients.wait(connection)
                self._grow(_SPARE)  # after the answer, since a start takes milliseconds
        except Lost:
            pass
        finally:
            self._clients.leave(connection)
            connection.close()

    def _answer(self, connection: Connection) -> bool:
        """Answer the request that has begun; False if the connection ends with it."""
        try:
            request = connection.request()
            found = self._routes.answer(request)
            if isinstance(found, Watch):
                self._stream(connection, found)
            else:
                connection.send(found)
        except Refused as refused:
            if (delay_s := self._refusals.delay_s()) > 0:
                self._stopping.wait(delay_s)
            connection.send(refused.answer())
            return not refused.close
        except Lost:
            raise
        except Exception:
            self._log.exception("A request to the lease listener failed")
            connection.send(_FAULT)
            return False
        return not request.head.close

    def _stream(self, connection: Connection, watch: Watch) -> None:
        if not self._watches.acquire(blocking=False):
            raise Refused(503, "busy", "There are too many watches.")
        try:
            try:
                lines, since = self._book.events(watch.since)
            except Gone:
                message = "The events since then are not kept: list anew."
                raise Refused(410, "gone", message) from None
            connection.send(STREAM_HEAD)
            self._send_events(connection, lines, since, watch.timeout_s)
            connection.send(LAST_CHUNK)
        finally:
            self._watches.release()

    def _send_events(
        self, connection: Connection, lines: list[bytes], since: int, timeout_s: float
    ) -> None:
        end = time.monotonic() + timeout_s
        while True:
            for start in range(0, len(lines), _LINES):
                connection.send(chunk(b"".join(lines[start : start + _LINES])))
            if not lines:
                connection.send(chunk(b'{"sequence":%d}\n' % since))
            left_s = end - time.monotonic()
            if left_s <= 0 or self._book.closed:
                return
            self._book.wait(since, min(left_s, self._limits.bookmark_s))
            try:
                lines, since = self._book.events(since)
            except Gone:  # this client reads slower than things happen
                return


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket that listens on the first address of a host.

    Raises:
        ConfigError: it cannot.
    """
    try:
        if not 0 <= port <= 65_535:
            raise ValueError("a port is at most 65535")
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        return socket.create_server(
            address,
            family=family,
            backlog=_BACKLOG,
            dualstack_ipv6=address[0] == "::" and socket.has_dualstack_ipv6(),
        )
    except (OSError, ValueError) as error:  # ValueError: also a name that cannot be encoded
        raise ConfigError(
            f"The lease listener cannot listen on port {port} of {host} ({_reason(error)}): set "
            f"kv_connector_extra_config.{contract.EXTRA_LEASE_PORT} to a free port, or "
            f"{contract.SIDE_CHANNEL_HOST_ENV} to an address of this machine."
        ) from error


def _reason(error: Exception) -> str:
    if not isinstance(error, OSError):
        return str(error)
    # Below 0 in errors of a look-up; elsewhere Python adds the address to the system's words.
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return str(error.strerror)
