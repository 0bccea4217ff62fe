"""Bytes of one connection to requests. No writing: what was found goes to a `Receiver`.

The parser is llhttp's. It takes an upgrade to another protocol as the end of a request, body or
not; this server upgrades to nothing, so the body is read here as if nothing had been offered.
"""

from typing import Final, Protocol

import httptools
from multidict import CIMultiDict

from disaggpair_router.inbound.message import Fault, Head

_MAX_FIELDS: Final = 256


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
        head_bytes: bound of a head.
    """

    def __init__(self, receiver: Receiver, peer: str, head_bytes: int) -> None:
        self._receiver = receiver
        self._peer = peer
        self._limit = head_bytes
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._fields: list[tuple[str, str]] = []
        self._head_bytes = 0
        self._after_upgrade = 0
        self.is_in_head = False
        """A request has begun and its head is not complete."""
        self.is_broken = False
        """Nothing more is read."""

    def feed(self, data: bytes) -> None:
        """Read what has come."""
        while data and not self.is_broken:
            data = self._rest_of_body(data) if self._after_upgrade else self._parsed(data)

    def _parsed(self, data: bytes) -> bytes:
        self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._parser = httptools.HttpRequestParser(self)
            return data[upgrade.args[0] :]
        except httptools.HttpParserError:
            self._fail("malformed")
        if self.is_in_head and self._head_bytes > self._limit:
            self._fail("head_too_large")
        return b""

    def _rest_of_body(self, data: bytes) -> bytes:
        piece, rest = data[: self._after_upgrade], data[self._after_upgrade :]
        self._after_upgrade -= len(piece)
        self._receiver.body(piece)
        if not self._after_upgrade:
            self._receiver.complete()
        return rest

    def _fail(self, fault: Fault) -> None:
        if not self.is_broken:
            self.is_broken = True
            self._receiver.failed(fault)

    # -- what the parser calls -----------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request begins."""
        self._url = b""
        self._fields = []
        self._head_bytes = 0
        self.is_in_head = True

    def on_url(self, url: bytes) -> None:
        """A piece of its target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One field."""
        if len(self._fields) <= _MAX_FIELDS:
            self._fields.append((name.decode("latin-1"), value.decode("utf-8", "surrogateescape")))

    def on_headers_complete(self) -> None:
        """Its head is here."""
        self.is_in_head = False
        if self.is_broken:
            return
        parser = self._parser
        headers = CIMultiDict(self._fields)
        target, _, query = self._url.decode("latin-1").partition("?")
        head = Head(parser.get_method().decode("ascii"), target, query, headers, self._peer)
        modern = parser.get_http_version() == "1.1"
        if len(self._fields) > _MAX_FIELDS:
            self._fail("head_too_large")
        elif not self._is_readable(head, modern=modern):
            self._fail("malformed")
        else:
            keeps = modern and parser.should_keep_alive()
            self._receiver.began(head, keeps=keeps, chunked=modern)

    def _is_readable(self, head: Head, *, modern: bool) -> bool:
        """Whether the end of its body can be found as everybody else would find it."""
        encoding = head.headers.get("Transfer-Encoding")
        upgrades = self._parser.should_upgrade()
        if upgrades:
            self._after_upgrade = head.length
        if encoding is None:
            return head.method != "CONNECT"
        return modern and not upgrades and encoding.lower() == "chunked"

    def on_body(self, piece: bytes) -> None:
        """Some of its body."""
        if not self.is_broken:
            self._receiver.body(piece)

    def on_message_complete(self) -> None:
        """It is complete, unless the parser stops before the body for an upgrade."""
        if not self.is_broken and not self._after_upgrade:
            self._receiver.complete()
