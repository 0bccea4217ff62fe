"""What goes out on one connection, and whether its client takes it."""

import asyncio
import contextlib
from typing import Final

from disaggpair_router.inbound.message import Answer, rendered
from disaggpair_router.inbound.pending import Pending

_HIGH_BYTES: Final = 64 * 1024
"""What may wait for a slow client before its stream is held up."""
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_LAST_CHUNK: Final = b"0\r\n\r\n"


class Outgoing:
    """Writes to a transport."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._drain: asyncio.Future[None] | None = None
        self._written = 0
        self._taken = 0
        self._since = 0
        self.is_full = False
        """The client is slow: nothing more should be written."""
        transport.set_write_buffer_limits(_HIGH_BYTES)

    @property
    def unsent(self) -> int:
        """Bytes that the client has not taken."""
        return self._transport.get_write_buffer_size()

    def go_on(self) -> None:
        """Tell a client that waits for it to send its body."""
        self._write(_CONTINUE)

    def whole(self, pending: Pending, answer: Answer, date: str) -> None:
        """A whole answer; ValueError, and nothing written, for a header that cannot be sent."""
        head = rendered(
            answer.status,
            answer.headers,
            kind=answer.kind,
            length=len(answer.body),
            date=date,
            keep=pending.keeps,
        )
        is_head = pending.head is not None and pending.head.method == "HEAD"
        self._write(head if is_head else head + answer.body)

    def piece(self, pending: Pending, data: bytes, date: str, *, last: bool) -> None:
        """Bytes of a stream, after its head if they are the first, before its end if the last.

        Raises ValueError as `whole`.
        """
        if pending.is_chunked:
            # An empty chunk would be the last one.
            data = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
            data += _LAST_CHUNK if last else b""
        if not pending.has_begun:
            length = None if pending.is_chunked else -1
            kind = pending.headers["Content-Type"]
            others = {name: one for name, one in pending.headers.items() if name != "Content-Type"}
            head = rendered(200, others, kind=kind, length=length, date=date, keep=pending.keeps)
            data = head + data
            pending.has_begun = True
        pending.has_ended = last
        self._write(data)

    def end(self) -> None:
        """Nothing more is written; what the client sends can still be read."""
        with contextlib.suppress(OSError):  # it has gone already
            self._transport.write_eof()

    def _write(self, data: bytes) -> None:
        self._written += len(data)
        self._transport.write(data)

    def wake(self) -> None:
        """Let whoever waits in `drained` look again."""
        drain, self._drain = self._drain, None
        if drain is not None and not drain.done():
            drain.set_result(None)

    async def drained(self) -> None:
        """Wait for `wake`; for one work at a time."""
        self._drain = asyncio.get_running_loop().create_future()
        await self._drain

    def stalled_for(self, ticks: int) -> int:
        """Ticks for which the client has taken nothing although there was something for it."""
        unsent = self.unsent
        taken = self._written - unsent
        if not unsent or taken > self._taken:
            self._since = ticks
        self._taken = taken
        return ticks - self._since
