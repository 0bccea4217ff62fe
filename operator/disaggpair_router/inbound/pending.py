"""A request that is being answered (`message.Responder`)."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from disaggpair_router.inbound.message import Head


class Sender(Protocol):
    """The connection of a pending request."""

    def send(self, pending: "Pending", data: bytes, *, last: bool) -> bool:
        """Bytes of the stream, with its head before the first and its end after the last.

        Whether the client is slow.
        """
        ...

    async def drained(self) -> None:
        """Wait for a slow client."""
        ...


class Pending:
    """One request, from its last byte to the end of its answer."""

    __slots__ = (
        "_call",
        "_sender",
        "body_bytes",
        "has_begun",
        "has_ended",
        "head",
        "headers",
        "is_chunked",
        "is_gone",
        "keeps",
        "task",
    )

    def __init__(self, sender: Sender, head: Head | None, *, keeps: bool, chunked: bool) -> None:
        self.head = head
        """None of a request that was not understood."""
        self.keeps = keeps
        """Whether the connection stays open after the answer."""
        self.is_chunked = chunked
        """Whether a stream has chunks; otherwise it ends with the connection."""
        self.headers: Mapping[str, str] = {}
        self.body_bytes = 0
        """Bytes of its body that are held."""
        self.is_gone = False
        """The client left, or has its answer."""
        self.has_begun = False
        self.has_ended = False
        """The stream is complete, though its work may not be."""
        self.task: asyncio.Task[None] | None = None
        self._sender = sender
        self._call: Callable[[], object] | None = None

    def when_gone(self, call: Callable[[], object]) -> None:
        """See `message.Responder`."""
        self._call = call

    def stream(self, headers: Mapping[str, str]) -> None:
        """See `message.Responder`."""
        self.headers = headers

    def send(self, data: bytes, *, last: bool = False) -> bool:
        """See `message.Responder`."""
        if self.is_gone or self.has_ended:
            return False
        return self._sender.send(self, data, last=last)

    async def drained(self) -> None:
        """See `message.Responder`."""
        await self._sender.drained()

    def leave(self) -> None:
        """The connection is closed."""
        self.is_gone = True
        if self._call is not None:
            self._call()
        elif self.task is not None:
            self.task.cancel()
