"""Bytes of one connection to requests. No writing: what was found goes to a `Receiver`.

The parser is llhttp's. It takes an upgrade to another protocol as the end of a request, body or
not; this server upgrades to nothing, so the body is read by another parser, which is told only how
long it is.
"""

from typing import Final, Protocol

import httptools
from multidict import CIMultiDict

from disaggpair_router.inbound.message import Fault, Head

_MAX_FIELDS: Final = 256
_LENGTH_DIGITS: Final = 20
"""Of 2^64, the parser's bound of a length. It lets any number of zeros stand before one."""


class Receiver(Protocol):
    """Takes what was found, in order."""

    def began(self, head: Head, *, keeps: bool, chunked: bool) -> None:
        """A head is complete; see `pending.Pending`."""
        ...

    def body(self, piece: bytes) -> None:
        """Some of the body."""
        ...

    def complete(self) -> None:
        """The request is complete."""
        ...

    def failed(self, fault: Fault) -> None:
        """What came is no request; nothing more of this connection will be read."""
        ...


class Incoming:
    """Reads the requests of one connection.

    Args:
        receiver: takes them.
        peer: of the connection.
        head_bytes: bound of a head, and of what comes in a row without being of use: before a
            request, or between two pieces of a body in chunks (extensions, trailers).
    """

    def __init__(self, receiver: Receiver, peer: str, head_bytes: int) -> None:
        self._receiver = receiver
        self._peer = peer
        self._limit = head_bytes
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._fields: list[tuple[str, str]] = []
        self._head_bytes = 0
        self._row_bytes = 0
        self._rest = b""
        """The header that says how long a body is that comes after the offer of an upgrade."""
        self._is_told = False
        """What is parsed is not the client's."""
        self.is_in_head = False
        """A request has begun and its head is not complete."""
        self.is_broken = False
        """Nothing more is read."""

    def feed(self, data: bytes) -> None:
        """Read what has come. What the receiver raises comes out of here."""
        while data and not self.is_broken:
            data = self._parsed(data)

    def stop(self) -> None:
        """Pass over everything from now on."""
        self.is_broken = True

    def _parsed(self, data: bytes) -> bytes:
        self._row_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._parse_anew()
            return data[upgrade.args[0] :]
        except httptools.HttpParserCallbackError as error:
            self.is_broken = True
            raise error.__context__ or error from None
        except httptools.HttpParserError:
            self._fail("malformed")
        if self._row_bytes > self._limit:
            self._fail("head_too_large" if self.is_in_head else "malformed")
        return b""

    def _parse_anew(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        if self._rest:
            self._is_told = True
            self._parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n\r\n" % self._rest)
            self._is_told, self._rest = False, b""

    def _fail(self, fault: Fault) -> None:
        if not self.is_broken:
            self.is_broken = True
            self._receiver.failed(fault)

    # -- what the parser calls -----------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request begins."""
        if self._is_told:
            return
        self._url = b""
        self._fields = []
        self._head_bytes = self._row_bytes = 0
        self.is_in_head = True

    def on_url(self, url: bytes) -> None:
        """A piece of its target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One field, or one after a body in chunks, which says nothing to anybody here."""
        if self.is_in_head:
            self._head_bytes += len(name) + len(value) + len(b": \r\n")
            if len(self._fields) <= _MAX_FIELDS:
                # The parser leaves white space at the end.
                text = value.rstrip(b" \t").decode("utf-8", "surrogateescape")
                self._fields.append((name.decode("latin-1"), text))

    def on_headers_complete(self) -> None:
        """Its head is here."""
        self.is_in_head = False
        if self.is_broken or self._is_told:
            return
        parser = self._parser
        version = parser.get_http_version()
        path, query = _target(self._url)
        headers = CIMultiDict(self._fields)
        head = Head(parser.get_method().decode("ascii"), path, query, headers, self._peer)
        if len(self._fields) > _MAX_FIELDS or self._head_bytes + len(self._url) > self._limit:
            self._fail("head_too_large")
        elif not self._is_readable(head, version):
            self._fail("malformed")
        else:
            if parser.should_upgrade():
                self._rest = _rest_of(head)
            modern = version == "1.1"
            keeps = modern and parser.should_keep_alive()
            self._receiver.began(head, keeps=keeps, chunked=modern)

    def _is_readable(self, head: Head, version: str) -> bool:
        """Whether the end of its body can be found as everybody else would find it."""
        if version not in ("1.0", "1.1") or head.method == "CONNECT":
            return False
        if head.is_chunked:
            encodings = [one.lower() for one in head.headers.getall("Transfer-Encoding")]
            is_alone = "Content-Length" not in head.headers
            return version == "1.1" and encodings == ["chunked"] and is_alone
        return len(head.headers.get("Content-Length", "")) <= _LENGTH_DIGITS

    def on_body(self, piece: bytes) -> None:
        """Some of its body."""
        self._row_bytes = 0
        if not self.is_broken:
            self._receiver.body(piece)

    def on_message_complete(self) -> None:
        """It is complete, unless the parser stops before the body for an upgrade."""
        self._row_bytes = 0
        if not self.is_broken and not self._rest:
            self._receiver.complete()


def _rest_of(head: Head) -> bytes:
    if head.is_chunked:
        return b"Transfer-Encoding: chunked"
    return b"Content-Length: %d" % head.length if head.length else b""


def _target(url: bytes) -> tuple[str, str]:
    """Path and query of a request's target, which may be a whole URL (absolute form)."""
    path, _, query = url.decode("latin-1").partition("?")
    if not path.startswith("/") and "://" in path:
        path = "/" + path.partition("://")[2].partition("/")[2]
    return path, query
