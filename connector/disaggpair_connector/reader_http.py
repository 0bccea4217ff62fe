"""P's connections to the lease listeners of other engines, with every wait bounded.

Written over sockets and not over `http.client`: that bounds each wait for the network but not
their sum, and does not say whether anything of an answer had come when a connection broke, on
which it depends whether the question may be asked again.
"""

import contextlib
import re
import select
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from disaggpair_connector.http_fields import (
    END_OF_HEAD,
    MAX_HEAD_BYTES,
    is_last,
    read_fields,
    read_length,
)
from disaggpair_connector.wire import MAX_ANSWER_BYTES

_STATUS_LINE: Final = re.compile(rb"HTTP/1\.1 ([2-5][0-9]{2})(?: [\t -~\x80-\xff]*)?")
_USED: Final = frozenset((b"content-length", b"transfer-encoding", b"connection"))
_RECEIVE_BYTES: Final = 64 * 1024

_KEPT_OF_PEER: Final = 2
_KEPT: Final = 64

Address = tuple[str, int]


class Broken(Exception):
    """There is no connection, or it ended before the answer did.

    Args:
        is_answered: whether some of the answer had come.
    """

    def __init__(self, *, is_answered: bool) -> None:
        super().__init__()
        self.is_answered = is_answered


class Late(Exception):
    """The answer was not complete in time."""


class Garbled(Exception):
    """What came is not an answer of a lease listener."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a listener said."""

    status: int
    body: bytes
    is_last: bool
    """Whether the connection ends with it."""


class PeerConnection:
    """A connection to one listener, used by one thread at a time.

    Raises:
        Broken: there is none.
        Late: there is none in time.

    Args:
        address: the listener's.
        connect_s: for the connection alone.
        clock: seconds that only grow.
    """

    def __init__(self, address: Address, connect_s: float, clock: Callable[[], float]) -> None:
        self._clock = clock
        try:
            self._socket = socket.create_connection(address, timeout=connect_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except (OSError, ValueError):  # ValueError: a name that cannot be encoded
            raise Broken(is_answered=False) from None

    def exchange(self, request: bytes, deadline: float) -> Answer:
        """Send a request and receive its answer.

        Raises:
            Broken: the connection ended.
            Late: the deadline passed.
            Garbled: something else came.
        """
        received = b""
        try:
            self._bound(deadline)
            self._socket.sendall(request)
            while (end := received.find(END_OF_HEAD)) < 0:
                if len(received) > MAX_HEAD_BYTES:
                    raise Garbled
                received += self._receive(deadline)
            status, length, last = _read_head(received[:end])
            body = bytearray(received[end + len(END_OF_HEAD) :])
            while len(body) < length:
                body += self._receive(deadline)
        except TimeoutError:
            raise Late from None
        except OSError:
            raise Broken(is_answered=bool(received)) from None
        if len(body) > length:
            raise Garbled
        return Answer(status, bytes(body), last)

    def is_quiet(self) -> bool:
        """Whether nothing has come since the last answer, the end of the connection included."""
        poll = select.poll()  # select() fails for the high descriptors of a busy server
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def shut(self) -> None:
        """End the connection; a thread that waits in it finds it broken."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the socket back."""
        self._socket.close()

    def _receive(self, deadline: float) -> bytes:
        self._bound(deadline)
        if not (data := self._socket.recv(_RECEIVE_BYTES)):
            raise ConnectionResetError
        return data

    def _bound(self, deadline: float) -> None:
        if (left_s := deadline - self._clock()) <= 0:
            raise TimeoutError
        self._socket.settimeout(left_s)


class IdleConnections:
    """Connections that wait for the next question, few of each peer and few of all.

    Args:
        idle_s: how long one is kept; below the listener's own bound.
        clock: seconds that only grow.
    """

    def __init__(self, idle_s: float, clock: Callable[[], float]) -> None:
        self._idle_s = idle_s
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: list[tuple[float, Address, PeerConnection]] = []  # oldest first

    def take(self, address: Address) -> PeerConnection | None:
        """The connection to a peer that was used last."""
        with self._lock:
            self._drop_old()
            for index in reversed(range(len(self._kept))):
                _, peer, connection = self._kept[index]
                if peer == address:
                    del self._kept[index]
                    if connection.is_quiet():
                        return connection
                    connection.close()
        return None

    def put(self, address: Address, connection: PeerConnection) -> None:
        """Keep a connection, or close it where there are enough."""
        with self._lock:
            self._drop_old()
            of_peer = sum(peer == address for _, peer, _ in self._kept)
            if of_peer >= _KEPT_OF_PEER:
                connection.close()
                return
            self._kept.append((self._clock(), address, connection))
            if len(self._kept) > _KEPT:
                self._kept.pop(0)[2].close()

    def close(self) -> None:
        """Close all."""
        with self._lock:
            for _, _, connection in self._kept:
                connection.close()
            self._kept.clear()

    def _drop_old(self) -> None:
        while self._kept and self._clock() - self._kept[0][0] > self._idle_s:
            self._kept.pop(0)[2].close()


def _read_head(head: bytes) -> tuple[int, int, bool]:
    """Status, length of the body, and whether the connection ends after it."""
    first, *lines = head.split(b"\r\n")
    if not (line := _STATUS_LINE.fullmatch(first)):
        raise Garbled
    try:
        fields = read_fields(lines, _USED)
        length = read_length(fields.get(b"content-length", b"0"))
    except ValueError:
        raise Garbled from None
    if b"transfer-encoding" in fields or length > MAX_ANSWER_BYTES:
        raise Garbled
    status = int(line[1])
    if status not in (204, 304) and b"content-length" not in fields:
        raise Garbled
    return status, length, is_last(fields)
