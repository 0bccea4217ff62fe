"""Questions to the owners of leases by function call, for cores without sockets."""

from collections.abc import Callable
from dataclasses import dataclass, field

from disaggpair_connector.book import LeaseBook
from disaggpair_connector.lease import LeaseError
from disaggpair_connector.wire import Declined, ReadAnswer, decode_read, encode_read

LEASE_PORT = 5700


@dataclass
class LocalTicket:
    """A question that was asked."""

    answer: ReadAnswer | Declined
    is_open: Callable[[], bool]
    give_back: Callable[[], None]

    def done(self) -> bool:
        """Whether the answer is out."""
        return self.is_open()

    def result(self) -> ReadAnswer | Declined:
        """The answer."""
        return self.answer

    def cancel(self) -> None:
        """Give the lease back, if the answer grants it."""
        if isinstance(self.answer, ReadAnswer):
            self.give_back()


@dataclass
class LocalReader:
    """Finds the book of an owner by its host, which is the engine's id."""

    book_of: Callable[[str], LeaseBook | None]
    block_size: int
    read_s: float
    is_open: Callable[[], bool]
    """Whether answers get through."""
    asked: list[tuple[str, int, str, str]] = field(default_factory=list)

    def ask(self, host: str, port: int, lease: str, token: str) -> LocalTicket:
        """Ask for the right to read, as over the listener's wire."""
        self.asked.append((host, port, lease, token))
        return LocalTicket(
            self._answer(host, port, lease, token),
            self.is_open,
            lambda: self.release(host, port, lease, token),
        )

    def release(self, host: str, port: int, lease: str, token: str) -> None:
        """Give a lease back; a refusal is of no interest."""
        book = self.book_of(host)
        if book is not None and port == LEASE_PORT:
            try:
                book.release(lease, token)
            except LeaseError:
                return

    def _answer(self, host: str, port: int, lease: str, token: str) -> ReadAnswer | Declined:
        book = self.book_of(host)
        if book is None or port != LEASE_PORT:
            return Declined("unreachable")
        try:
            held = book.read(lease, token)
        except LeaseError as error:
            return Declined(error.code)
        return decode_read(encode_read(held, block_size=self.block_size, deadline_s=self.read_s))
