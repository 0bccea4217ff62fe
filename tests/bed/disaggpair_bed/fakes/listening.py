"""A lease listener as engines have it, on a socket of its own, for tests of its clients."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from disaggpair_bed.fakes.rawhttp import BLOCK_SIZE
from disaggpair_connector.book import LeaseBook
from disaggpair_connector.listener import LeaseListener

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
