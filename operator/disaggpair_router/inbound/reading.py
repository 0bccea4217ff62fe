"""The requests of one connection as they come: what is done about each, and its body.

Whether a request is answered at once or after others is its `Taker`'s to know.
"""

import logging
from dataclasses import dataclass
from typing import Final, Protocol

from disaggpair_router.inbound.incoming import Incoming
from disaggpair_router.inbound.message import Answer, Fault, Head, Work
from disaggpair_router.inbound.pending import Pending, Sender
from disaggpair_router.inbound.port import Port

logger = logging.getLogger(__name__)

_SMALL_BYTES: Final = 64 * 1024
"""A body that nobody wants is read up to here, so that its connection serves on."""


class Taker(Sender, Protocol):
    """Takes requests, in order."""

    @property
    def is_free(self) -> bool:
        """Nothing is being answered."""
        ...

    def take(self, pending: Pending, what: Work | Answer, body: bytes = b"") -> None:
        """A request whose work may begin, or whose answer is known."""
        ...

    def go_on(self) -> None:
        """The client waits to be told that its body is wanted."""
        ...

    def passed_over(self) -> None:
        """The body that nobody wants is complete, or will not be."""
        ...


@dataclass(slots=True)
class _Received:
    """A request whose body is being read."""

    pending: Pending
    work: Work | None
    """None when it has its answer already and its body is of no use."""
    body: bytearray
    """What has come of it."""


class Reading:
    """Reads requests (`incoming.Receiver`).

    Args:
        server: that they are for.
        taker: takes them.
        peer: address of the client.
    """

    def __init__(self, server: Port, taker: Taker, peer: str) -> None:
        self._server = server
        self._taker = taker
        self._peer = peer
        self._received: _Received | None = None
        self._incoming = Incoming(self, peer, server.patience.head_bytes)

    @property
    def is_in_head(self) -> bool:
        """A request has begun and its head is not complete."""
        return self._incoming.is_in_head

    @property
    def is_in_body(self) -> bool:
        """A head is complete and its body is not."""
        return self._received is not None

    @property
    def is_broken(self) -> bool:
        """Nothing more is read."""
        return self._incoming.is_broken

    def feed(self, data: bytes) -> None:
        """Bytes have come."""
        self._incoming.feed(data)

    def stop(self) -> None:
        """Pass over everything from now on."""
        self._incoming.stop()

    def late(self) -> None:
        """The rest of a request does not come."""
        self._incoming.stop()
        self.failed("late")

    def lost(self) -> None:
        """The connection is closed."""
        if self._received is not None:
            self.forget(self._received.pending)

    def forget(self, pending: Pending) -> None:
        """The body of a request is held no more."""
        self._server.held_bytes -= pending.body_bytes
        pending.body_bytes = 0

    def is_unread(self, pending: Pending) -> bool:
        """Whether the body of a request that is answered already will not be read to its end."""
        head = pending.head
        if head is None or self._received is None or self._received.pending is not pending:
            return False
        # A client that was not told to go on may send its next request in place of the body.
        return head.is_chunked or head.length > (0 if head.awaits_word else _SMALL_BYTES)

    # -- what `Incoming` calls -----------------------------------------------------------------

    def began(self, head: Head, *, keeps: bool, chunked: bool) -> None:
        """See `incoming.Receiver`."""
        pending = Pending(self._taker, head, keeps=keeps, chunked=chunked)
        outcome = self._server.application.begin(head)
        if isinstance(outcome, Answer):
            self._received = _Received(pending, None, bytearray())
            self._taker.take(pending, outcome)
            return
        self._received = _Received(pending, outcome, bytearray())
        # HTTP/1.0 knows no such word.
        if head.awaits_word and chunked and self._taker.is_free:
            self._taker.go_on()

    def body(self, piece: bytes) -> None:
        """See `incoming.Receiver`."""
        received, server = self._received, self._server
        if received is None or received.work is None:
            return
        received.body += piece
        received.pending.body_bytes += len(piece)
        server.held_bytes += len(piece)
        if received.pending.body_bytes > server.application.max_body_bytes:
            self._unwanted(received, "body_too_large")
        elif server.held_bytes > server.max_held_bytes:
            self._unwanted(received, "overloaded")

    def complete(self) -> None:
        """See `incoming.Receiver`."""
        received, self._received = self._received, None
        if received is None:
            return
        if received.work is None:
            self._taker.passed_over()
            return
        self._taker.take(received.pending, received.work, bytes(received.body))

    def failed(self, fault: Fault) -> None:
        """See `incoming.Receiver`; also for a request whose rest does not come."""
        received, self._received = self._received, None
        if fault == "malformed":
            # Its bytes may be an API key with a line break in it.
            logger.info("a request from %s could not be read", self._peer)
        if received is not None and received.work is None:
            received.pending.keeps = False
            if received.pending.is_gone:
                self._taker.passed_over()
            return
        if received is None:
            pending = Pending(self._taker, None, keeps=False, chunked=False)
        else:
            pending = received.pending
        self._refuse(pending, fault)

    def _unwanted(self, received: _Received, fault: Fault) -> None:
        """Answer now; what comes of the body is passed over."""
        received.work = None
        received.body.clear()
        self.forget(received.pending)
        self._refuse(received.pending, fault)

    def _refuse(self, pending: Pending, fault: Fault) -> None:
        pending.keeps = False
        self._taker.take(pending, self._server.application.fault(fault, pending.head))
