"""An application made for tests of the router's HTTP server, and the server with it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from disaggpair_bed.rawconnection import RawConnection
from disaggpair_bed.routing import eventually
from disaggpair_router.inbound.message import TEXT, Answer, Fault, Head, Responder, Work
from disaggpair_router.inbound.patience import Patience
from disaggpair_router.inbound.server import Server
from disaggpair_router.listening import Listener

STATUS: Final[dict[Fault, int]] = {
    "malformed": 400,
    "head_too_large": 431,
    "body_too_large": 413,
    "late": 408,
    "overloaded": 503,
    "failed": 500,
}

Route = Callable[[Head], Work | Answer]


@dataclass
class Script:
    """Serves what a test puts into `routes`, by path; anything else is a 404."""

    max_body_bytes: int = 2**20
    routes: dict[str, Route] = field(default_factory=dict)
    begun: list[Head] = field(default_factory=list)
    """Heads that were asked about."""
    faults: list[Fault] = field(default_factory=list)
    """What could not be served."""

    def begin(self, head: Head) -> Work | Answer:
        """See `inbound.message.Application`."""
        self.begun.append(head)
        route = self.routes.get(head.path)
        return route(head) if route else Answer(404, b"not found", TEXT)

    def fault(self, fault: Fault, head: Head | None) -> Answer:
        """See `inbound.message.Application`."""
        self.faults.append(fault)
        return Answer(STATUS[fault], fault.encode(), TEXT)


def answer(status: int = 200, body: bytes = b"now", **headers: str) -> Route:
    """Answered at once, whatever the body."""
    return lambda head: Answer(status, body, TEXT, headers)


def work(run: Callable[[bytes, Responder], Awaitable[Answer | None]]) -> Route:
    """Answered by a work."""
    return lambda head: run


async def echo(body: bytes, responder: Responder) -> Answer:
    """Answer with the body."""
    return Answer(200, body, TEXT)


class Gate:
    """A work that waits until it is let through, then echoes."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.waiting = 0
        """Works at the gate."""
        self.cancelled = 0

    async def __call__(self, body: bytes, responder: Responder) -> Answer:
        """See `message.Work`."""
        self.waiting += 1
        try:
            await self.opened.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.waiting -= 1
        return await echo(body, responder)


def streaming(*pieces: bytes) -> Route:
    """A stream of these pieces at the client's pace."""

    async def run(body: bytes, responder: Responder) -> None:
        responder.stream({"Content-Type": "text/event-stream", "X-A": "b"})
        for piece in pieces:
            if responder.send(piece):
                await responder.drained()

    return work(run)


@dataclass
class Served:
    """A server on loopback."""

    server: Server
    script: Script
    port: int
    listener: Listener
    clients: list[RawConnection] = field(default_factory=list)

    async def client(self, receive_bytes: int = 0) -> RawConnection:
        """A new connection, which the server has taken."""
        before = self.server.open
        client = await RawConnection.connect(self.port, receive_bytes)
        self.clients.append(client)
        await eventually(lambda: self.server.open > before)
        return client

    async def asked(self, *requests: bytes) -> RawConnection:
        """A new connection that has sent something."""
        client = await self.client()
        await client.send(*requests)
        return client


@asynccontextmanager
async def serving(
    script: Script | None = None, *, patience: Patience | None = None, max_held_bytes: int = 2**30
) -> AsyncIterator[Served]:
    """A server whose seconds are the test's to count.

    At the end it has no connection, no task and no byte of a body.
    """
    script = script or Script()
    server = Server(script, patience=patience, max_held_bytes=max_held_bytes)
    listener = Listener(server)
    port = await listener.start("127.0.0.1", 0)
    served = Served(server, script, port, listener)
    try:
        yield served
    finally:
        listener.stop()
        await server.close(0)
        for client in served.clients:
            await client.close()
        await eventually(lambda: not server.open)
        assert not server.tasks
        assert server.held_bytes == 0
