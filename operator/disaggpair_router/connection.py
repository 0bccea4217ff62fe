"""A client's connection, as the legs of a turn see it (`client.Client`)."""

import asyncio
from collections.abc import Mapping

from disaggpair_router.client import Cut
from disaggpair_router.inbound.message import Responder

_COMMENT = b": keep-alive\n\n"


class HttpClient:
    """One request's connection, seen as a client of a turn.

    Args:
        responder: where bytes go.
        headers: of a stream, besides its type.
    """

    def __init__(self, responder: Responder, headers: Mapping[str, str]) -> None:
        self._responder = responder
        self._cut: Cut | None = None
        self._comments: asyncio.TimerHandle | None = None
        self.is_gone = False
        self.sent = b""
        """The last bytes of the stream that were sent."""
        responder.stream(
            {
                **headers,
                "Content-Type": "text/event-stream; charset=utf-8",
                "Cache-Control": "no-cache",
            }
        )

    @property
    def has_begun(self) -> bool:
        """Whether the status was sent."""
        return self._responder.has_begun

    def send(self, data: bytes, *, last: bool = False) -> bool:
        """See `client.Client`; dropped once the client is gone."""
        self.end_comments()
        self.sent = data
        return self._responder.send(data, last=last)

    async def drained(self) -> None:
        """See `client.Client`."""
        await self._responder.drained()

    def comment_every(self, seconds: float) -> None:
        """Send comments until there is something to send, or `end_comments`."""
        loop = asyncio.get_running_loop()
        self._comments = loop.call_later(seconds, self._comment, seconds)

    def end_comments(self) -> None:
        """Send no more comments."""
        if self._comments is not None:
            self._comments.cancel()
            self._comments = None

    def _comment(self, seconds: float) -> None:
        if not self.is_gone:
            self._responder.send(_COMMENT)
            self.comment_every(seconds)

    def when_gone(self, cut: Cut | None) -> None:
        """Set what is called when the client leaves."""
        self._cut = cut
        if self.is_gone and cut is not None:
            cut()

    def leave(self) -> None:
        """The connection is closed."""
        self.is_gone = True
        self.end_comments()
        if self._cut is not None:
            self._cut()
