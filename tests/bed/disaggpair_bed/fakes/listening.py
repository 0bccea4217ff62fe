"""A lease listener as engines have it, on a socket of its own, for tests of its clients."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from disaggpair_bed.fakes.rawhttp import BLOCK_SIZE, BOUND_S
from disaggpair_connector.book import LeaseBook
from disaggpair_connector.listener import LeaseListener
from disaggpair_router.leases.client import LeaseClient

KEY = "listener-key"


@dataclass
class Listening:
    """A book and where it is served."""

    book: LeaseBook
    host: str
    port: int
    stop: Callable[[], None]
    """Ends it before its time."""

    @property
    def url(self) -> str:
        """Base URL."""
        return f"http://{self.host}:{self.port}"


@asynccontextmanager
async def lease_client(key: str = KEY, claim_s: float = BOUND_S) -> AsyncIterator[LeaseClient]:
    """A router's client, open while the block runs."""
    client = LeaseClient(key=key, claim_s=claim_s)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


@contextmanager
def listening(
    epoch: str = "e1",
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    claim_s: float = 10.0,
    ttl_s: float = 100.0,
) -> Iterator[Listening]:
    """Serve an empty book while the block runs."""
    book = LeaseBook(epoch=epoch, ttl_s=ttl_s, claim_s=claim_s, read_s=20)
    listener = LeaseListener(book, host=host, port=port, key=KEY, block_size=BLOCK_SIZE, read_s=20)
    found = listener.start()
    try:
        yield Listening(book, host, found, listener.stop)
    finally:
        listener.stop()
