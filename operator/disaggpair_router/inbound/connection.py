"""One client's connection: requests in, one answer at a time out.

Requests that come before the one before is answered wait, and so does the rest of the connection.
"""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from typing import Final, cast

from disaggpair_router.inbound.message import Answer, Work
from disaggpair_router.inbound.outgoing import Outgoing
from disaggpair_router.inbound.pending import Pending
from disaggpair_router.inbound.port import Port
from disaggpair_router.inbound.reading import Reading

logger = logging.getLogger(__name__)

_MAX_WAITING: Final = 64
"""Requests that may come before the first is answered."""


class Connection(asyncio.Protocol):
    """A connection of a server (`reading.Taker`).

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
        self._answering: Pending | None = None
        self._waiting: deque[tuple[Pending, Work | Answer, bytes]] = deque()
        self._is_paused = False
        self._is_closing = False
        self._since = server.ticks
        """Tick of the client's last progress."""

    # -- what the loop calls -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        # uvloop's transports are none of asyncio's classes.
        self._transport = cast(asyncio.Transport, transport)
        self._out = Outgoing(self._transport)
        peer = transport.get_extra_info("peername")
        self._reading = Reading(self._server, self, str(peer[0]) if isinstance(peer, tuple) else "")
        found = transport.get_extra_info("socket")
        if found is not None:
            # Finds a client whose host is gone without a word.
            found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._joined(self)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if not (self._reading.is_in_head or self._is_closing):
            self._since = self._server.ticks
        try:
            self._reading.feed(data)
        except Exception:
            logger.exception("a connection failed")
            self.cut()

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        self._out.is_full = True

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        self._out.is_full = False
        self._out.wake()
        self._advance()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol. A client that has closed its side only has left, too."""
        self._left(self)
        self._is_closing = True
        self._drop_waiting()
        self._reading.lost()
        self._out.wake()
        if self._answering is not None:
            self._answering.leave()

    # -- what `Reading` calls ------------------------------------------------------------------

    @property
    def is_free(self) -> bool:
        """See `reading.Taker`."""
        return self._answering is None and not self._waiting

    def go_on(self) -> None:
        """See `reading.Taker`."""
        self._out.go_on()

    def passed_over(self) -> None:
        """See `reading.Taker`."""
        if self._reading.is_broken:
            self.close()
        elif self._is_closing:
            self._reading.stop()
            self._transport.close()

    def take(self, pending: Pending, what: Work | Answer, body: bytes = b"") -> None:
        """See `reading.Taker`."""
        if self._is_closing:
            self._reading.forget(pending)
        elif self.is_free and not self._out.is_full:
            self._answer(pending, what, body)
        elif len(self._waiting) < _MAX_WAITING:
            self._waiting.append((pending, what, body))
            self._pause()
        else:
            self._reading.forget(pending)
            self.cut()

    # -- answers, one after the other ----------------------------------------------------------

    def _answer(self, pending: Pending, what: Work | Answer, body: bytes) -> None:
        self._answering = pending
        if isinstance(what, Answer):
            self._end(pending, what)
            return
        task = pending.task = asyncio.get_running_loop().create_task(self._run(pending, what, body))
        self._server.tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._server.tasks.discard(task)
            self._reading.forget(pending)  # also when it was cancelled before it began

        task.add_done_callback(ended)

    async def _run(self, pending: Pending, work: Work, body: bytes) -> None:
        try:
            working = work(body, pending)
            del body  # a stream may go on for minutes
            self._end(pending, await working)
        except asyncio.CancelledError:
            self.cut()
            raise
        except Exception:
            logger.exception("a request failed")
            self._end(pending, self._server.application.fault("failed", pending.head))

    def _end(self, pending: Pending, answer: Answer | None) -> None:
        """The answer is complete, or this is all of it."""
        self._reading.forget(pending)
        if pending.is_gone or self._is_closing:
            return
        if pending.has_ended:
            pass  # whatever its work came to, the client has its answer
        elif answer is None:
            self.send(pending, b"", last=True)
        elif pending.has_begun:
            self.cut()  # the client must not take what it got for a whole answer
            return
        else:
            is_last = self._server.is_closing or self._reading.is_unread(pending)
            pending.keeps = pending.keeps and not is_last
            self._out.whole(pending, answer, self._server.date)
        self._since = self._server.ticks
        pending.is_gone = True
        self._answering = None
        # Of requests that wait the next one is told that the server closes.
        if pending.keeps and (self._waiting or not self._server.is_closing):
            self._advance()
        else:
            self.close()

    def _advance(self) -> None:
        """Go on to the next request."""
        if self._is_closing or self._out.is_full or self._answering is not None:
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

    def _drop_waiting(self) -> None:
        for pending, _, _ in self._waiting:
            self._reading.forget(pending)
        self._waiting.clear()

    def send(self, pending: Pending, data: bytes, *, last: bool) -> bool:
        """See `pending.Sender`."""
        if self._is_closing:
            return False
        if not pending.has_begun:
            pending.keeps = pending.keeps and pending.is_chunked and not self._server.is_closing
        self._out.piece(pending, data, self._server.date, last=last)
        return self._out.is_full

    async def drained(self) -> None:
        """See `pending.Sender`."""
        while self._out.is_full and not self._is_closing:
            await self._out.drained()

    # -- how it ends ---------------------------------------------------------------------------

    def close(self) -> None:
        """Close once everything is sent.

        What the client still sends is read for a while and passed over: bytes that nobody has read
        would make the system reset the connection, and the client lose its answer.
        """
        if self._is_closing:
            return
        self._is_closing = True
        self._since = self._server.ticks
        is_more_to_come = self._is_paused or self._reading.is_broken or self._reading.is_in_body
        self._drop_waiting()
        if not self._reading.is_in_body:
            self._reading.stop()
        if not is_more_to_come:
            self._transport.close()
            return
        self._out.end()
        if self._is_paused:
            self._transport.resume_reading()

    def close_if_idle(self) -> None:
        """Close unless a request is being read or answered."""
        if self.is_free and not (self._reading.is_in_body or self._reading.is_in_head):
            self.close()

    def cut(self) -> None:
        """Close now."""
        self._is_closing = True
        self._reading.stop()
        self._transport.abort()

    def tick(self) -> None:
        """Seconds have passed: end what has waited too long."""
        patience, ticks = self._server.patience, self._server.ticks
        has_stalled = self._out.stalled_for(ticks) > patience.stalled
        if self._is_closing:
            if self._out.unsent:
                self._since = ticks
            if has_stalled or ticks - self._since > patience.linger:
                self.cut()
        elif self._out.is_full:
            if has_stalled:
                self.cut()
        elif self._answering is None:
            self._expect_more(ticks - self._since)

    def _expect_more(self, waited: int) -> None:
        """Nothing is being answered, and the client has sent nothing for so many seconds."""
        patience = self._server.patience
        if self._reading.is_in_body:
            if waited > patience.body:
                self._reading.late()
        elif self._reading.is_in_head:
            if waited > patience.head:
                self._reading.late()
        elif waited > patience.idle:
            self.close()
