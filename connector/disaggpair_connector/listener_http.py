"""The part of HTTP/1.1 that the lease listener speaks: heads in, answers out. Pure.

Written out, since `http.server` makes an e-mail message of every head, which costs more than the
rest of a request, and accepts what this refuses: line ends without a carriage return, folded and
repeated fields, bodies in chunks. Each of those is read differently by different programs, and
the listener's callers use none of them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl

from disaggpair_connector.http_fields import is_last, read_fields, read_length
from disaggpair_connector.wire import MAX_BODY_BYTES, encode

MAX_PARAMETERS: Final = 8

LAST_CHUNK: Final = b"0\r\n\r\n"

_REQUEST_LINE: Final = re.compile(rb"([A-Z]{1,16}) (/[!-~]*) HTTP/(\d\.\d)")
_USED: Final = frozenset(
    (b"host", b"content-length", b"transfer-encoding", b"connection", b"authorization", b"expect")
)


class Refused(Exception):
    """A request that gets an error for its answer.

    Args:
        status: of the answer.
        code: for programs.
        message: one sentence for people, without anything of the request in it.
        close: whether the connection ends, since where the next request starts is not known.
    """

    def __init__(self, status: int, code: str, message: str, *, close: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.close = close

    def answer(self) -> bytes:
        """The whole answer."""
        error = {"code": self.code, "message": self.message}
        return answer(self.status, encode({"error": error}), close=self.close)


@dataclass(frozen=True, slots=True)
class Head:
    """What is used of a request's head."""

    method: str
    path: str
    query: str
    authorization: bytes | None
    length: int
    """Bytes of body."""
    close: bool
    """Whether this is the client's last request on the connection."""


@dataclass(frozen=True, slots=True)
class Request:
    """A head and its body."""

    head: Head
    body: bytes

    def parameters(self) -> Mapping[str, str]:
        """The query, each name once.

        Raises:
            Refused: it is not a query, or repeats a name.
        """
        if not self.head.query:
            return {}
        try:
            pairs = parse_qsl(
                self.head.query, strict_parsing=True, errors="strict", max_num_fields=MAX_PARAMETERS
            )
        except ValueError:
            raise Refused(400, "query", "The query cannot be read.") from None
        if len(found := dict(pairs)) != len(pairs):
            raise Refused(400, "query", "The query names a parameter twice.")
        return found


def parse_head(head: bytes) -> Head:
    """A request's head, without the empty line.

    Raises:
        Refused: it is not what this module reads.
    """
    first, *lines = head.split(b"\r\n")
    if not (line := _REQUEST_LINE.fullmatch(first)):
        raise Refused(400, "request_line", "The request line cannot be read.", close=True)
    if line[3] != b"1.1":
        raise Refused(505, "version", "HTTP/1.1 is spoken here and nothing else.", close=True)
    try:
        fields = read_fields(lines, _USED)
        length = read_length(fields.get(b"content-length", b"0"))
    except ValueError as error:
        raise Refused(400, "head", f"The head is wrong: {error}.", close=True) from None
    _check(fields, length)
    path, _, query = line[2].decode("ascii").partition("?")
    return Head(
        method=line[1].decode("ascii"),
        path=path,
        query=query,
        authorization=fields.get(b"authorization"),
        length=length,
        close=is_last(fields),
    )


def _check(fields: Mapping[bytes, bytes], length: int) -> None:
    if b"host" not in fields:
        raise Refused(400, "host", "There is no Host field.", close=True)
    if b"transfer-encoding" in fields:
        raise Refused(411, "length", "A body needs a Content-Length.", close=True)
    if b"expect" in fields:
        raise Refused(417, "expect", "Expect is not supported: send the body at once.", close=True)
    if length > MAX_BODY_BYTES:
        message = f"A body has at most {MAX_BODY_BYTES} bytes."
        raise Refused(413, "body", message, close=True)


def answer(status: int, body: bytes = b"", *, close: bool = False) -> bytes:
    """A whole answer, to be sent in one piece; the body is JSON, or there is none."""
    described = b"content-type: application/json\r\n" if body else b""
    # A 204 must not have a length.
    length = b"content-length: %d\r\n" % len(body) if status != HTTPStatus.NO_CONTENT else b""
    return b"%b%b%b\r\n%b" % (_start(status, close=close), described, length, body)


def chunk(data: bytes) -> bytes:
    """A chunk; `data` is not empty, which would be the last one."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def _start(status: int, *, close: bool) -> bytes:
    line = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncache-control: no-store\r\n"
    return (line + ("connection: close\r\n" if close else "")).encode("ascii")


STREAM_HEAD: Final = _start(200, close=False) + (
    b"content-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n"
)
"""The head of an answer in chunks, one JSON object on a line."""
