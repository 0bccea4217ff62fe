"""What a connection needs of the server that made it."""

import asyncio
from typing import Protocol

from disaggpair_router.inbound.message import Application
from disaggpair_router.inbound.patience import Patience


class Port(Protocol):
    """A server, seen from one of its connections."""

    application: Application
    patience: Patience
    max_held_bytes: int
    held_bytes: int
    """Of bodies, from their first byte to the end of their answer."""
    is_closing: bool
    """Connections end after the answer that they are giving."""
    ticks: int
    """Seconds since the start."""
    date: str
    """The time of this tick as headers have it."""
    tasks: set[asyncio.Task[None]]
    """Works in flight."""
