"""The bytes of an answer on their way to the client, with the faults that are about bytes."""

import asyncio
from dataclasses import dataclass
from typing import NoReturn

import orjson
from aiohttp import web

from disaggpair_bed.simengine.faults import Fault, Faults

SSE = "text/event-stream; charset=utf-8"


def event(body: object, name: str = "") -> bytes:
    """One server-sent event, with a name if one is given."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + orjson.dumps(body) + b"\n\n"


@dataclass(frozen=True)
class _Style:
    """How the bytes of one answer are written."""

    split: Fault | None
    crlf: bool
    comments: bool
    multiline: bool
    slow: Fault | None

    @classmethod
    def take(cls, faults: Faults, *, stream: bool) -> "_Style":
        def is_on(kind: str) -> bool:
            return stream and faults.take(kind) is not None

        return cls(
            split=faults.take("split_chunks"),
            crlf=is_on("crlf"),
            comments=is_on("comments"),
            multiline=is_on("multiline"),
            slow=faults.take("slow_stream") if stream else None,
        )

    def of(self, data: bytes) -> bytes:
        """Events as this style has them."""
        if self.multiline:
            data = data.replace(b"data: {", b"data: {\ndata: ")
        if self.comments:
            data = b": keep-alive\n\n" + data
        return data.replace(b"\n", b"\r\n") if self.crlf else data


class Writer:
    """Writes one answer."""

    def __init__(
        self, request: web.Request, response: web.StreamResponse, faults: Faults, *, stream: bool
    ) -> None:
        self._request = request
        self._response = response
        self._faults = faults
        self._style = _Style.take(faults, stream=stream)

    async def begin(self) -> None:
        """Send the head."""
        await self._faults.thawed()
        await self._response.prepare(self._request)

    async def write(self, data: bytes) -> None:
        """Send some events, or a body."""
        if not data:
            return
        if self._style.slow is not None:
            await asyncio.sleep(self._style.slow.delay_s)
        await self._faults.thawed()
        data = self._style.of(data)
        size = self._style.split.size if self._style.split else len(data)
        for start in range(0, len(data), size):
            await self._response.write(data[start : start + size])
            if size < len(data):
                await asyncio.sleep(0)

    async def end(self) -> None:
        """Send the end."""
        await self._response.write_eof()


async def reset(request: web.Request) -> NoReturn:
    """Close the client's connection without another byte; the server then cancels the handler."""
    if request.transport is not None:
        request.transport.abort()
    await asyncio.Event().wait()
    raise AssertionError
