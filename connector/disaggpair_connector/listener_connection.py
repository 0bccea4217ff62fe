"""One client's connection to the lease listener: bytes in and out, each with a bound in time.

While the engine computes in Python, a thread that wants to run waits for up to
`sys.getswitchinterval()` (5 ms) whenever it comes back from the operating system. So a request is
received with one call in the usual case and its answer is sent with one, and the time limits are
the kernel's own: a socket with a timeout of Python's is polled before each call, which is one
more such wait (a claim in 15 ms instead of 9, 99th percentile, `tests/load/bench_listener.py`
with the main thread in Python code).
"""

import contextlib
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from disaggpair_connector.http_fields import END_OF_HEAD, MAX_HEAD_BYTES
from disaggpair_connector.listener_http import Refused, Request, parse_head

_RECEIVE_BYTES: Final = 16 * 1024
_LINGER_S: Final = 1.0


class Lost(Exception):
    """The client is gone, or took too long over what was sent to it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a listener."""

    connections: int = 64
    """Clients at a time; those above it are told to come later."""
    watches: int = 32
    """Clients at a time that watch; the rest of the connections is for everything else."""
    first_s: float = 10.0
    """From the connection to the first byte of a request."""
    idle_s: float = 75.0
    """Between two requests."""
    request_s: float = 10.0
    """From a request's first byte to its last."""
    send_s: float = 10.0
    """For the client to take an answer, or a piece of a watch."""
    bookmark_s: float = 5.0
    """Between two lines of a watch, at most."""


class Connection:
    """A client's socket, used by one thread; `shut` may be called by any.

    Args:
        sock: as it was accepted.
        limits: of time.
        clock: seconds that only grow.
    """

    def __init__(
        self, sock: socket.socket, limits: Limits, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._socket = sock
        self._limits = limits
        self._clock = clock
        self._received = b""
        if sock.gettimeout() is not None:  # a default of the process; a call for nothing costs
            sock.settimeout(None)
        with contextlib.suppress(OSError):  # the client is gone, as the first use will show
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._limit(socket.SO_SNDTIMEO, limits.send_s)
            self._limit(socket.SO_RCVTIMEO, limits.first_s)

    def wait(self) -> bool:
        """Whether a request has begun; False if the client left, or said nothing for too long."""
        if not self._received:
            try:
                self._received = self._receive()
            except (Lost, TimeoutError):
                return False
        return True

    def request(self) -> Request:
        """The request that has begun.

        Raises:
            Refused: it cannot be read, or does not come to its end in time.
            Lost: the client left.
        """
        deadline = self._clock() + self._limits.request_s
        while (end := self._received.find(END_OF_HEAD)) < 0:
            if len(self._received) > MAX_HEAD_BYTES:
                break
            self._receive_more(deadline)
        if not 0 <= end <= MAX_HEAD_BYTES:
            message = f"The head has more than {MAX_HEAD_BYTES} bytes."
            raise Refused(431, "head", message, close=True)
        head = parse_head(self._received[:end])
        start = end + len(END_OF_HEAD)
        while len(self._received) < start + head.length:
            self._receive_more(deadline)
        body = self._received[start : start + head.length]
        self._received = self._received[start + head.length :]
        self._limit(socket.SO_RCVTIMEO, self._limits.idle_s)
        return Request(head, body)

    def send(self, data: bytes) -> None:
        """Send all of it.

        Raises:
            Lost: the client left, or does not read.
        """
        try:
            # One call: the kernel sends until all is sent or its limit has passed.
            sent = self._socket.send(data)
        except OSError:
            raise Lost from None
        if sent != len(data):
            raise Lost

    def linger(self) -> None:
        """Say that nothing follows, and take in what the client still sends for a moment.

        A socket that is closed with something unread may take the last answer back.
        """
        with contextlib.suppress(OSError, Lost):
            self._socket.shutdown(socket.SHUT_WR)
            deadline = self._clock() + _LINGER_S
            while (left_s := deadline - self._clock()) > 0:
                self._limit(socket.SO_RCVTIMEO, left_s)
                self._receive()

    def refuse(self, data: bytes) -> None:
        """Send as much as can be sent at once, and close. Without a wait, for who must go on."""
        with contextlib.suppress(OSError):
            self._socket.setblocking(False)
            self._socket.send(data)
        self.close()

    def shut(self) -> None:
        """End the connection; a thread that waits in it goes on and finds it ended."""
        with contextlib.suppress(OSError):  # the client was faster
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the socket back."""
        self._socket.close()

    def _receive_more(self, deadline: float) -> None:
        late = Refused(408, "late", "The request did not come to its end in time.", close=True)
        if (left_s := deadline - self._clock()) <= 0:
            raise late
        self._limit(socket.SO_RCVTIMEO, left_s)
        try:
            self._received += self._receive()
        except TimeoutError:
            raise late from None

    def _receive(self) -> bytes:
        try:
            data = self._socket.recv(_RECEIVE_BYTES)
        except BlockingIOError:  # what the kernel says at its limit
            raise TimeoutError from None
        except OSError:
            raise Lost from None
        if not data:
            raise Lost
        return data

    def _limit(self, option: int, seconds: float) -> None:
        microseconds = max(1, int(seconds * 1e6))  # 0 would be no limit
        value = struct.pack("@ll", *divmod(microseconds, 1_000_000))
        self._socket.setsockopt(socket.SOL_SOCKET, option, value)
