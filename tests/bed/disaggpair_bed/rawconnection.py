"""A client that sends bytes as they are and reads one answer after the other."""

import asyncio
import contextlib
import socket
from dataclasses import dataclass
from typing import Final, Self

_BOUND_S: Final = 20.0


@dataclass
class RawAnswer:
    """What came."""

    status: int
    headers: dict[str, str]
    """By name in lower case."""
    body: bytes
    head: bytes
    """Status line and headers as they came."""


class RawConnection:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, port: int, receive_bytes: int = 0) -> Self:
        """Connect to a port of this machine.

        With `receive_bytes` the system keeps about so much for a client that does not read, and
        this client reads nothing before it is asked to.
        """
        one = socket.socket()
        one.setblocking(False)
        if receive_bytes:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        await asyncio.get_running_loop().sock_connect(one, ("127.0.0.1", port))
        reader, writer = await asyncio.open_connection(sock=one, limit=2**16)
        if receive_bytes:
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # one that reads
        return cls(reader, writer)

    async def send(self, *data: bytes) -> None:
        """Send pieces."""
        for piece in data:
            self.writer.write(piece)
            await asyncio.wait_for(self.writer.drain(), _BOUND_S)

    def read_on(self) -> None:
        """Read after all."""
        self.writer.transport.resume_reading()  # type: ignore[attr-defined]  # one that reads

    async def head(self) -> RawAnswer:
        """An answer's head."""
        raw = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), _BOUND_S)
        first, *lines = raw.decode("latin-1").split("\r\n")[:-2]
        fields = (line.partition(": ") for line in lines)
        headers = {name.lower(): value for name, _, value in fields}
        return RawAnswer(int(first.split(" ")[1]), headers, b"", raw)

    async def chunk(self) -> bytes:
        """A chunk of an answer; empty for the last."""
        line = await asyncio.wait_for(self.reader.readuntil(b"\r\n"), _BOUND_S)
        data = await self.exactly(int(line, 16))
        assert await self.exactly(2) == b"\r\n"
        return data

    async def exactly(self, count: int) -> bytes:
        """So many bytes."""
        return await asyncio.wait_for(self.reader.readexactly(count), _BOUND_S)

    async def answer(self, *, method: str = "GET") -> RawAnswer:
        """A whole answer to a request of the method."""
        answer = await self.head()
        if answer.status == 100 or method == "HEAD":
            return answer
        if "content-length" in answer.headers:
            answer.body = await self.exactly(int(answer.headers["content-length"]))
        elif "transfer-encoding" in answer.headers:
            while piece := await self.chunk():
                answer.body += piece
        else:
            answer.body = await self.rest()
        return answer

    async def rest(self) -> bytes:
        """All that comes until the server closes its side; ConnectionError if it cuts."""
        return await asyncio.wait_for(self.reader.read(), _BOUND_S)

    async def is_closed(self) -> bool:
        """Whether the server has closed or cut, which is waited for, with nothing before it."""
        try:
            return await self.rest() == b""
        except ConnectionError:
            return True

    def cut(self) -> None:
        """Leave at once, with a reset if anything was not read."""
        self.writer.transport.abort()

    async def close(self) -> None:
        """Leave."""
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


def request(
    path: str = "/", *headers: str, method: str = "GET", body: bytes | None = None
) -> bytes:
    """A request of HTTP/1.1; a body has its length before it."""
    lines = [f"{method} {path} HTTP/1.1", "Host: a", *headers]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


def post(path: str, body: bytes, *headers: str) -> bytes:
    """A request with a body."""
    return request(path, *headers, method="POST", body=body)


def in_chunks(path: str, *chunks: bytes, last: bool = True) -> bytes:
    """A request with a body in chunks."""
    head = request(path, "Transfer-Encoding: chunked", method="POST")
    parts = [b"%x\r\n%b\r\n" % (len(one), one) for one in chunks]
    return head + b"".join(parts) + (b"0\r\n\r\n" if last else b"")
