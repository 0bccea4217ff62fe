"""A connection to an engine without a network: a test says what D says, in which read."""

import asyncio
from typing import Any

from disaggpair_router.wire import Connection

END = b"0\r\n\r\n"
"""Ends a body in chunks."""


class EngineTransport:
    """The network below a connection; closed soon after it is aborted."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.is_paused = False

    def write(self, data: bytes) -> None:
        """Nobody reads it."""

    def pause_reading(self) -> None:
        """See asyncio.Transport."""
        self.is_paused = True

    def resume_reading(self) -> None:
        """See asyncio.Transport."""
        self.is_paused = False

    def abort(self) -> None:
        """See asyncio.Transport."""
        asyncio.get_running_loop().call_soon(self._connection.connection_lost, None)


def answering(framing: bytes) -> Connection:
    """A connection whose answer has begun, with this header."""
    connection = Connection(lambda: None)
    transport: Any = EngineTransport(connection)
    connection.connection_made(transport)
    connection.send(b"POST / HTTP/1.1\r\n\r\n", b"")
    connection.data_received(b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n")
    return connection


def framed(piece: bytes) -> bytes:
    """A chunk of a body."""
    return b"%x\r\n%b\r\n" % (len(piece), piece)
