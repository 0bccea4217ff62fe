"""The connections of one port: who is waited for too long, and how they end together.

Time is counted in ticks of a second, which `run` makes: a request costs no timers.
"""

import asyncio
import contextlib
import time
from email.utils import formatdate
from typing import Final

from disaggpair_router.inbound.connection import Connection
from disaggpair_router.inbound.message import Application
from disaggpair_router.inbound.patience import Patience

_TICK_S: Final = 1.0


class Server:
    """Makes the protocol of each connection (`Listener` calls it), and keeps them.

    Args:
        application: what is served.
        patience: how long clients are waited for.
        max_held_bytes: bound of what the bodies of all requests in work take together.
    """

    def __init__(
        self,
        application: Application,
        *,
        patience: Patience | None = None,
        max_held_bytes: int = 2**30,
    ) -> None:
        self.application = application
        self.patience = patience or Patience()
        self.max_held_bytes = max_held_bytes
        self.held_bytes = 0
        """Of bodies, from their first byte to the end of their answer."""
        self.is_closing = False
        """Connections end after the answer that they are giving."""
        self.ticks = 0
        self.date = ""
        """The time of this tick as headers have it."""
        self.tasks: set[asyncio.Task[None]] = set()
        self._connections: set[Connection] = set()
        self._empty = asyncio.Event()
        self.tick(0)

    @property
    def open(self) -> int:
        """Connections."""
        return len(self._connections)

    def __call__(self) -> Connection:
        """The protocol of a new connection."""
        return Connection(self, self._joined, self._left)

    def _joined(self, connection: Connection) -> None:
        """A connection is open."""
        self._connections.add(connection)
        if self.is_closing:
            connection.close_if_idle()

    def _left(self, connection: Connection) -> None:
        """A connection is closed."""
        self._connections.discard(connection)
        if self.is_closing and not self._connections:
            self._empty.set()

    def tick(self, count: int = 1) -> None:
        """So many seconds have passed: connections end what has waited too long."""
        self.ticks += count
        self.date = formatdate(time.time(), usegmt=True)
        for connection in list(self._connections):
            connection.tick()

    async def run(self) -> None:
        """Count the seconds, endlessly."""
        while True:
            await asyncio.sleep(_TICK_S)
            self.tick()

    def close_idle(self) -> None:
        """Close what waits for a request; the others close after their answer."""
        self.is_closing = True
        for connection in list(self._connections):
            connection.close_if_idle()

    async def close(self, limit_s: float) -> None:
        """Wait for answers that are on their way for at most so long, then cut everything."""
        self.close_idle()
        if self._connections:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), limit_s)
        for connection in list(self._connections):
            connection.cut()
        for task in tuple(self.tasks):
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks)
