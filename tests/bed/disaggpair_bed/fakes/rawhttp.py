"""Both ends of HTTP by hand, for tests of the lease listener and its reader."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any

from disaggpair_connector.book import LeaseBook
from disaggpair_connector.digest import digests_of
from disaggpair_connector.lease import Lease

BLOCK_SIZE = 16
BOUND_S = 10.0
"""For every wait of a test."""


def grant(book: LeaseBook, name: str, tokens: int = 600, conversation: str | None = "c") -> Lease:
    """A lease on tokens 0, 1, 2 and so on."""
    blocks = -(-tokens // BLOCK_SIZE)
    return book.grant(
        id=name,
        conversation=conversation,
        tokens=tokens,
        block_ids=[range(100, 100 + blocks)],
        digests=digests_of(range(tokens), tokens, b""),
        handle={
            "do_remote_decode": True,
            "do_remote_prefill": False,
            "remote_engine_id": "d-engine",
            "remote_request_id": f"request-of-{name}",
            "remote_host": "10.0.0.9",
            "remote_port": 5600,
            "remote_block_ids": [list(range(100, 100 + blocks))],
            "remote_num_tokens": tokens,
            "tp_size": 1,
        },
        divisible=True,
        pinned=None,
    )


class RawClient:
    """A connection that sends bytes as they are given and reads answers."""

    def __init__(self, host: str, port: int, receive_bytes: int | None = None) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        if receive_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(BOUND_S)
        try:
            self.socket.connect((host, port))
        except OSError:
            self.socket.close()
            raise
        self._answers = self.socket.makefile("rb")

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        self._answers.close()
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def head(self) -> tuple[int, dict[str, str]]:
        """Status and fields; a status of 0 is the end of the connection."""
        line = self._answers.readline()
        if not line:
            return 0, {}
        fields = {}
        while (field := self._answers.readline()) != b"\r\n":
            name, _, value = field.decode().strip().partition(": ")
            fields[name] = value
        return int(line.split()[1]), fields

    def answer(self) -> tuple[int, bytes]:
        status, fields = self.head()
        return status, self._answers.read(int(fields.get("content-length", "0")))

    def chunk(self) -> bytes:
        """The next piece of a stream, empty at its end."""
        size = int(self._answers.readline(), 16)
        data = self._answers.read(size)
        assert self._answers.readline() == b"\r\n"
        return data

    def is_ended(self) -> bool:
        """Whether the other side ends the connection, waiting for it."""
        try:
            return self._answers.read(1) == b""
        except ConnectionResetError:
            return True


def request(method: str, path: str, body: bytes = b"", key: str | None = None) -> bytes:
    """A request in one piece."""
    allowed = f"authorization: Bearer {key}\r\n" if key else ""
    head = f"{method} {path} HTTP/1.1\r\nhost: d\r\n{allowed}content-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def answer(status: int, body: bytes = b"", fields: str = "") -> bytes:
    """An answer in one piece."""
    return f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\n{fields}\r\n".encode() + body


Play = Callable[[socket.socket, "ScriptedServer"], None]


class ScriptedServer:
    """A server that plays one script on each connection, in order, and the last one again.

    A connection stays open after its script until the server is left.
    """

    def __init__(self, *scripts: Play) -> None:
        self.requests: list[bytes] = []
        self.connections = 0
        self.host = "127.0.0.1"
        self._scripts = scripts
        self._changed = threading.Condition()
        self._socket = socket.create_server((self.host, 0))
        self.port: int = self._socket.getsockname()[1]
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]

    def __enter__(self) -> "ScriptedServer":
        self._threads[0].start()
        return self

    def __exit__(self, *_: Any) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._threads[0].join(BOUND_S)
        for sock in self._open:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(BOUND_S)
        for sock in [self._socket, *self._open]:
            sock.close()

    def receive(self, sock: socket.socket) -> bool:
        """Take in a request with a body of its length; False at the end of the connection."""
        data = b""
        while b"\r\n\r\n" not in data or not data.endswith(b"}"):
            with suppress(OSError):
                piece = sock.recv(65536)
                data += piece
                if piece:
                    continue
            return False
        with self._changed:
            self.requests.append(data)
            self._changed.notify_all()
        return True

    def wait_for_requests(self, count: int) -> list[bytes]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.requests) >= count, BOUND_S)
            return list(self.requests)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._socket.accept()
            except OSError:
                return
            self._open.append(sock)
            play = self._scripts[min(self.connections, len(self._scripts) - 1)]
            self.connections += 1
            thread = threading.Thread(target=self._play, args=(play, sock))
            self._threads.append(thread)
            thread.start()

    def _play(self, play: Play, sock: socket.socket) -> None:
        with suppress(OSError):
            play(sock, self)


def answering(*answers: bytes) -> Play:
    """Answer one request after the other, then say nothing."""

    def play(sock: socket.socket, server: ScriptedServer) -> None:
        for each in answers:
            if not server.receive(sock):
                return
            sock.sendall(each)

    return play


def ending(*answers: bytes) -> Play:
    """Answer one request after the other, then end the connection."""

    def play(sock: socket.socket, server: ScriptedServer) -> None:
        answering(*answers)(sock, server)
        sock.shutdown(socket.SHUT_RDWR)

    return play


def ending_unanswered(sock: socket.socket, server: ScriptedServer) -> None:
    """Take in a request and end the connection."""
    server.receive(sock)
    sock.shutdown(socket.SHUT_RDWR)
