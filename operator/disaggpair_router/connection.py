"""A client's connection, as the legs of a turn see it (`client.Client`)."""

import asyncio

from aiohttp import web

from disaggpair_router.client import Cut

_COMMENT = b": keep-alive\n\n"


class HttpClient:
    """One request's connection, seen as a client of a turn."""

    def __init__(self, request: web.Request, headers: dict[str, str]) -> None:
        self._request = request
        self._headers = headers
        self._cut: Cut | None = None
        self._sending = asyncio.Lock()
        self._has_data = False
        self.is_gone = False
        self.sent = b""
        """The last bytes of the stream that were sent."""
        self.response: web.StreamResponse | None = None
        """The stream, once it has begun."""

    @property
    def has_begun(self) -> bool:
        """Whether the status was sent."""
        return self.response is not None

    async def write(self, data: bytes) -> None:
        """Send bytes of the stream; dropped once the client is gone."""
        self._has_data = True
        self.sent = data
        async with self._sending:
            await self._send(data)

    async def keep_alive(self) -> bool:
        """Send a comment if the client has nothing yet; False when it needs no more of them."""
        async with self._sending:
            if self._has_data or self.is_gone:
                return False
            await self._send(_COMMENT)
            return True

    async def _send(self, data: bytes) -> None:
        if self.is_gone:
            return
        try:
            if self.response is None:
                self.response = web.StreamResponse(
                    headers={
                        **self._headers,
                        "Content-Type": "text/event-stream; charset=utf-8",
                        "Cache-Control": "no-cache",
                    }
                )
                await self.response.prepare(self._request)
            await self.response.write(data)
        except ConnectionError:
            self.leave()

    def when_gone(self, cut: Cut | None) -> None:
        """Set what is called when the client leaves."""
        self._cut = cut
        if self.is_gone and cut is not None:
            cut()

    def leave(self) -> None:
        """The connection is closed."""
        self.is_gone = True
        if self._cut is not None:
            self._cut()
