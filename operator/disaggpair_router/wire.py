"""One HTTP/1.1 connection to an engine: a request of known length, then its answer as it comes.

Only what an engine's API needs, because a turn spends much of its time here: no redirects, cookies,
compression or proxies. The parser is llhttp's. `pool` keeps connections, `upstream` gives failures
their meaning.
"""

import asyncio
from collections.abc import Callable
from typing import Final, cast

import httptools

_HEAD_BYTES: Final = 256 * 1024
"""Bound of an answer's head, with the interim ones before it."""
_HIGH_BYTES: Final = 256 * 1024
"""An engine is read no further while so much waits for a slow client."""


Take = Callable[[bytes], bool]
"""Takes bytes; whether it wants more."""


class Broken(Exception):
    """The connection ended or what came is no HTTP."""


class Connection(asyncio.Protocol):
    """A connection to an engine; one request at a time.

    `lost` is called when it ends, whatever it is doing.
    """

    def __init__(self, lost: Callable[[], object]) -> None:
        self._lost = lost
        self.status = 0
        self.headers: dict[str, str] = {}
        """Of the answer, by lower-case names; of several the last one."""
        self.idle_since = 0.0
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._held = 0
        self._head_bytes = 0
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._take: Take | None = None
        """Who gets what comes, if somebody does; otherwise it is held for `read`."""
        self._limit_s = 0.0
        self._end = 0.0
        """When the wait is over, by the loop's clock."""
        self._timer: asyncio.TimerHandle | None = None
        self._has_head = False
        self._is_complete = True
        self._is_paused = False
        self._is_lost = False
        self._keeps = True

    # -- what a caller does --------------------------------------------------------------------

    def send(self, head: bytes, body: bytes) -> None:
        """Begin a request; the answer of the one before is complete."""
        self.status = 0
        self.headers = {}
        self._pieces.clear()
        self._held = self._head_bytes = 0
        self._has_head = self._is_complete = False
        # One piece is one packet of a small request; of a large one it would be a copy.
        if len(body) <= _HIGH_BYTES:
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            self._transport.write(body)

    async def head(self, limit_s: float) -> None:
        """Wait for status and headers; Broken or TimeoutError when they do not come."""
        end = self._loop.time() + limit_s
        while not self._has_head:
            await self._more(end)

    async def read(self, limit_s: float) -> bytes:
        """What has come of the body, at least a byte; empty at its end.

        Raises Broken when it ends early, TimeoutError when nothing comes.
        """
        if not self._pieces:
            end = self._loop.time() + limit_s
            while not (self._pieces or self._is_complete):
                await self._more(end)
        return self._held_bytes()

    async def each(self, take: Take, limit_s: float) -> bool:
        """Give the body to `take` piece by piece, each in the loop's call that brings it.

        That spares a stream of many small pieces the way through a task for every one of them.

        Args:
            take: is not called again once it wants no more, or nobody waits here any longer. What
                it raises is raised here.
            limit_s: how long to wait for each piece.

        Returns:
            Whether `take` wanted no more; False at the end of the body. Raises as `read`.
        """
        self._take, self._limit_s = take, limit_s
        try:
            if self._pieces and not take(self._held_bytes()):
                self._take = None
            while self._has_taker and not self._is_complete:
                await self._more(self._loop.time() + limit_s)
            return not self._has_taker
        finally:
            self._take = None

    async def whole(self, limit_s: float, limit_bytes: int) -> bytes:
        """The rest of the body, raising as `read`; the limits are for all of it."""
        end = self._loop.time() + limit_s
        pieces = []
        while piece := await self.read(end - self._loop.time()):
            pieces.append(piece)
            limit_bytes -= len(piece)
            if limit_bytes < 0:
                raise Broken
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    @property
    def is_reusable(self) -> bool:
        """Whether another request can be sent; not while it is held up for a slow reader."""
        is_free = self._is_complete and not self._is_paused
        return is_free and self._keeps and not self._is_lost

    def close(self) -> None:
        """Drop the connection; a wait for its bytes ends as Broken."""
        self._keeps = False
        self._transport.abort()

    @property
    def _has_taker(self) -> bool:
        return self._take is not None

    def _held_bytes(self) -> bytes:
        found = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._held = 0
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        return found

    async def _more(self, end: float) -> None:
        if self._is_lost:
            raise Broken
        waiter = self._waiter = self._loop.create_future()
        self._end = end
        if self._timer is None or end < self._timer.when():
            self._look_at(end)
        try:
            await waiter
        finally:
            self._waiter = None

    def _look_at(self, when: float) -> None:
        """Look then whether somebody has waited too long.

        A stream has thousands of waits, most of which end at once: one timer serves all that are
        shorter than what is left of it.
        """
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        if self._loop.time() < self._end:
            self._look_at(self._end)
        else:
            self._waiter.set_exception(TimeoutError())

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # -- what the loop calls -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        # uvloop's transports are none of asyncio's classes.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if not self._has_head:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._is_lost = True
            self.close()
        if not self._has_head and self._head_bytes > _HEAD_BYTES and not self._is_lost:
            self._is_lost = True
            self.close()
        waiter = self._waiter
        if self._take is not None and waiter is not None and not waiter.done():
            self._pass_on(self._take, waiter)
            return
        if self._held > _HIGH_BYTES and not self._is_paused and not self._is_lost:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def _pass_on(self, take: Take, waiter: "asyncio.Future[None]") -> None:
        try:
            if self._pieces:
                self._end = self._loop.time() + self._limit_s
                if not take(self._held_bytes()):
                    self._take = None
        except Exception as error:
            self._take = None
            waiter.set_exception(error)
        if self._take is None or self._is_complete or self._is_lost:
            self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        # A body without a length ends with its connection.
        if exc is None and self._has_head and not self._is_complete and not self._has_length:
            self._is_complete = True
        self._is_lost = True
        if self._timer is not None:
            self._timer.cancel()
        self._lost()
        self._wake()

    # -- what the parser calls -----------------------------------------------------------------

    def on_message_begin(self) -> None:
        """An answer begins; one to nothing could be mistaken for the next request's."""
        if self._is_complete:
            raise Broken

    def on_header(self, name: bytes, value: bytes) -> None:
        """One field."""
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The head is here; one that only says that more is coming is not the answer's."""
        self.status = self._parser.get_status_code()
        if self.status >= 200:
            self._has_head = True
            self._keeps = self._keeps and self._parser.should_keep_alive()

    def on_body(self, body: bytes) -> None:
        """Bytes of the body, without the frame of a chunk."""
        self._pieces.append(body)
        self._held += len(body)

    def on_message_complete(self) -> None:
        """The answer is whole."""
        if self.status >= 200:
            self._is_complete = True
        else:
            self.headers = {}

    @property
    def _has_length(self) -> bool:
        return "content-length" in self.headers or "transfer-encoding" in self.headers
