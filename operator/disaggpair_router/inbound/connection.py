"""One client's connection: requests in, one answer at a time out.

Requests that come before the one before is answered wait, and so does the rest of the connection.
"""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

from disaggpair_router.inbound.incoming import Incoming
from disaggpair_router.inbound.message import Answer, Fault, Head, Work, rendered
from disaggpair_router.inbound.pending import Pending
from disaggpair_router.inbound.port import Port

logger = logging.getLogger(__name__)

_HIGH_BYTES: Final = 64 * 1024
"""What may wait for a slow client before its stream is held up."""
_MAX_WAITING: Final = 64
"""Requests that may come before the first is answered."""
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_LAST_CHUNK: Final = b"0\r\n\r\n"


@dataclass(slots=True)
class _Received:
    """A request whose body is being read."""

    pending: Pending
    work: Work | None
    """None when it has its answer already and its body is of no use."""
    pieces: list[bytes]


class Connection(asyncio.Protocol):
    """A connection of a server.

    `joined` and `left` are called when it opens and when it has closed.
    """

    def __init__(
        self,
        server: Port,
        joined: "Callable[[Connection], object]",
        left: "Callable[[Connection], object]",
    ) -> None:
        self._joined, self._left = joined, left
        self._server = server
        self._reading: _Received | None = None
        self._answering: Pending | None = None
        self._waiting: deque[tuple[Pending, Work | Answer, bytes]] = deque()
        self._drain: asyncio.Future[None] | None = None
        self._is_full = False
        self._is_paused = False
        self._is_closing = False
        self._since = server.ticks
        """Tick of the last progress, which `is_late` measures from."""

    # -- what the loop calls -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        # uvloop's transports are none of asyncio's classes.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(_HIGH_BYTES)
        peer = transport.get_extra_info("peername")
        self._peer = str(peer[0]) if isinstance(peer, tuple) else ""
        found = transport.get_extra_info("socket")
        if found is not None:
            # Finds a client whose host is gone without a word.
            found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._incoming = Incoming(self, self._peer, self._server.patience.head_bytes)
        self._joined(self)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if not (self._incoming.is_in_head or self._is_closing):
            self._since = self._server.ticks
        self._incoming.feed(data)

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        self._is_full = True
        self._since = self._server.ticks

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        self._is_full = False
        self._wake()
        self._advance()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._left(self)
        self._is_closing = True
        for pending, _, _ in self._waiting:
            self._forget(pending)
        if self._reading is not None:
            self._forget(self._reading.pending)
        self._waiting.clear()
        self._wake()
        if self._answering is not None:
            self._answering.leave()

    # -- what `Incoming` calls -----------------------------------------------------------------

    def began(self, head: Head, *, keeps: bool, chunked: bool) -> None:
        """See `incoming.Receiver`."""
        pending = Pending(self, head, keeps=keeps, chunked=chunked)
        outcome = self._server.application.begin(head)
        if isinstance(outcome, Answer):
            self._reading = _Received(pending, None, [])
            self._next(pending, outcome)
            return
        self._reading = _Received(pending, outcome, [])
        waits = head.headers.get("Expect", "").lower() == "100-continue"
        if waits and self._answering is None and not self._waiting:
            self._transport.write(_CONTINUE)

    def body(self, piece: bytes) -> None:
        """See `incoming.Receiver`."""
        reading = self._reading
        if reading is None or reading.work is None:
            return
        reading.pieces.append(piece)
        reading.pending.body_bytes += len(piece)
        self._server.held_bytes += len(piece)
        if reading.pending.body_bytes > self._server.application.max_body_bytes:
            self._unwanted(reading, "body_too_large")
        elif self._server.held_bytes > self._server.max_held_bytes:
            self._unwanted(reading, "overloaded")

    def complete(self) -> None:
        """See `incoming.Receiver`."""
        reading, self._reading = self._reading, None
        if reading is None:
            return
        if reading.work is not None:
            pieces = reading.pieces
            body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            self._next(reading.pending, reading.work, body)
        elif self._is_closing:
            self._transport.close()

    def failed(self, fault: Fault) -> None:
        """See `incoming.Receiver`; also for a request whose rest does not come."""
        reading, self._reading = self._reading, None
        if fault == "malformed":
            # Its bytes may be an API key with a line break in it.
            logger.info("a request from %s could not be read", self._peer)
        if reading is not None and reading.work is None:
            self.close()  # it has its answer
            return
        pending = reading.pending if reading else Pending(self, None, keeps=False, chunked=False)
        pending.keeps = False
        self._next(pending, self._server.application.fault(fault, pending.head))

    def _unwanted(self, reading: _Received, fault: Fault) -> None:
        """Answer now; what comes of the body is passed over."""
        reading.work = None
        reading.pieces.clear()
        reading.pending.keeps = False
        self._next(reading.pending, self._server.application.fault(fault, reading.pending.head))

    # -- answers, one after the other ----------------------------------------------------------

    def _next(self, pending: Pending, what: Work | Answer, body: bytes = b"") -> None:
        if self._is_closing:
            self._forget(pending)
        elif self._answering is None and not self._waiting and not self._is_full:
            self._answer(pending, what, body)
        elif len(self._waiting) < _MAX_WAITING:
            self._waiting.append((pending, what, body))
            self._pause()
        else:
            self._forget(pending)
            self.cut()

    def _answer(self, pending: Pending, what: Work | Answer, body: bytes) -> None:
        self._answering = pending
        if isinstance(what, Answer):
            self._end(pending, what)
            return
        task = pending.task = asyncio.get_running_loop().create_task(self._run(pending, what, body))
        self._server.tasks.add(task)
        task.add_done_callback(self._server.tasks.discard)

    async def _run(self, pending: Pending, work: Work, body: bytes) -> None:
        working = work(body, pending)
        del body  # a stream may go on for minutes
        try:
            answer = await working
        except asyncio.CancelledError:
            self._forget(pending)
            self.cut()
            raise
        except Exception:
            logger.exception("a request failed")
            answer = self._server.application.fault("failed", pending.head)
        self._end(pending, answer)

    def _end(self, pending: Pending, answer: Answer | None) -> None:
        """The answer is complete, or this is all of it."""
        self._forget(pending)
        if pending.is_gone or self._is_closing:
            return
        self._since = self._server.ticks
        if answer is None:
            self._last(pending)
        elif pending.has_begun:
            self.cut()  # the client must not take what it got for a whole answer
            return
        else:
            self._whole(pending, answer)
        self._answering = None
        if pending.keeps:
            self._advance()
        else:
            self.close()

    def _advance(self) -> None:
        """Go on to the next request."""
        if self._is_closing or self._is_full or self._answering is not None:
            return
        if self._waiting:
            self._answer(*self._waiting.popleft())
        elif self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()

    def _pause(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def _forget(self, pending: Pending) -> None:
        """The request's body is held no more."""
        self._server.held_bytes -= pending.body_bytes
        pending.body_bytes = 0

    def _last(self, pending: Pending) -> None:
        if not pending.has_ended:
            self.send(pending, b"", last=True)

    def _whole(self, pending: Pending, answer: Answer) -> None:
        pending.keeps = pending.keeps and not self._is_unread(pending)
        pending.keeps = pending.keeps and not self._server.is_closing
        head = rendered(
            answer.status,
            answer.headers,
            kind=answer.kind,
            length=len(answer.body),
            date=self._server.date,
            keep=pending.keeps,
        )
        is_head = pending.head is not None and pending.head.method == "HEAD"
        self._transport.write(head if is_head else head + answer.body)

    def send(self, pending: Pending, data: bytes, *, last: bool) -> bool:
        """See `pending.Sender`."""
        if pending.is_chunked:
            # An empty chunk would be the last one.
            data = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
            data += _LAST_CHUNK if last else b""
        pending.has_ended = last
        if not pending.has_begun:
            pending.has_begun = True
            pending.keeps = pending.keeps and pending.is_chunked and not self._server.is_closing
            length = None if pending.is_chunked else -1
            kind = pending.headers["Content-Type"]
            others = {name: one for name, one in pending.headers.items() if name != "Content-Type"}
            date = self._server.date
            head = rendered(200, others, kind=kind, length=length, date=date, keep=pending.keeps)
            data = head + data
        self._transport.write(data)
        return self._is_full

    async def drained(self) -> None:
        """See `pending.Sender`."""
        while self._is_full and not self._is_closing:
            self._drain = asyncio.get_running_loop().create_future()
            await self._drain

    def _wake(self) -> None:
        drain, self._drain = self._drain, None
        if drain is not None and not drain.done():
            drain.set_result(None)

    # -- how it ends ---------------------------------------------------------------------------

    def _is_unread(self, pending: Pending) -> bool:
        """Whether the body of a request that is answered already is too long to be read."""
        if self._reading is None or self._reading.pending is not pending or not pending.head:
            return False
        return pending.head.is_chunked or pending.head.length > _HIGH_BYTES

    def close(self) -> None:
        """Close once everything is sent and the body that is coming was read or given up."""
        self._is_closing = True
        self._since = self._server.ticks
        if self._reading is None or self._incoming.is_broken:
            self._transport.close()

    def close_if_idle(self) -> None:
        """Close unless a request is being read or answered."""
        if self._answering is None and self._reading is None and not self._incoming.is_in_head:
            self.close()

    def cut(self) -> None:
        """Close now."""
        self._transport.abort()

    def is_late(self, ticks: int) -> bool:
        """Whether what this connection waits for has taken too long."""
        patience, waited = self._server.patience, ticks - self._since
        if self._is_closing:
            return waited > patience.linger
        if self._is_full:
            return waited > patience.stalled
        if self._answering is not None:
            return False
        if self._reading is not None:
            return waited > patience.body
        return waited > (patience.head if self._incoming.is_in_head else patience.idle)

    def give_up(self) -> None:
        """Wait no longer."""
        if self._is_closing or self._is_full:
            self.cut()
        elif self._reading is not None or self._incoming.is_in_head:
            self._incoming.is_broken = True
            self.failed("late")
        else:
            self.close()
