"""One connection of the generator: a request at a time, with the times of its answer.

Parses as little as it can: the head once, then only where the body ends.
"""

import asyncio
import time
from collections.abc import Callable
from typing import cast

_HEAD_END = b"\r\n\r\n"
_LAST_CHUNK = b"0\r\n\r\n"


class Exchange(asyncio.Protocol):
    """A kept connection. `ask` sends; `done` is called with the status, 0 for a broken one."""

    def __init__(self) -> None:
        self.first_at = 0.0
        """When the first byte of the answer's body came."""
        self.is_open = False
        self.on_data: Callable[[bytes, float], object] | None = None
        """Called with every piece of an answer's body and its time."""
        self._done: Callable[[int], object] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's classes.
        self._transport = cast(asyncio.Transport, transport)
        self.is_open = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self._finish(0)

    def ask(self, head: bytes, body: bytes, done: Callable[[int], object]) -> None:
        """Send a request."""
        self.answer = bytearray()
        self.body_at = 0
        self.status = 0
        self._length: int | None = None
        self._closes = False
        self.first_at = 0.0
        self._done = done
        self._transport.write(head + body)

    def close(self) -> None:
        """Drop the connection."""
        self._done = None
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        self.answer += data
        if not self.body_at and not self._head():
            return
        if not self.first_at and len(self.answer) > self.body_at:
            self.first_at = now
        if self.on_data is not None:
            self.on_data(data, now)
        if self._length is None:
            complete = self.answer.endswith(_LAST_CHUNK)
        else:
            complete = len(self.answer) >= self.body_at + self._length
        if complete:
            if self._closes:
                self.is_open = False
                self._transport.abort()
            self._finish(self.status)

    def body(self) -> bytes:
        """The body of a complete answer that has a length."""
        return bytes(self.answer[self.body_at :])

    def _head(self) -> bool:
        end = self.answer.find(_HEAD_END)
        if end < 0:
            return False
        head = bytes(self.answer[: end + 2]).lower()
        self.status = int(head[9:12])
        at = head.find(b"\r\ncontent-length:")
        self._length = int(head[at + 17 : head.index(b"\r\n", at + 2)]) if at >= 0 else None
        self._closes = b"\r\nconnection: close" in head
        self.body_at = end + 4
        return True

    def _finish(self, status: int) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(status)


def head_of(path: str, length: int) -> bytes:
    """The head of a POST of JSON."""
    return (
        f"POST {path} HTTP/1.1\r\nhost: router\r\ncontent-type: application/json\r\n"
        f"content-length: {length}\r\n\r\n"
    ).encode()
