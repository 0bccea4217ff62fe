"""Questions to the owners of leases by function call, for cores without sockets."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from disaggpair_connector.book import LeaseBook
from disaggpair_connector.lease import LeaseError
from disaggpair_connector.wire import Declined, ReadAnswer, decode_read, encode_read

LEASE_PORT = 5700


@dataclass(frozen=True)
class LocalOwner:
    """An engine that gives leases."""

    book: LeaseBook
    block_size: int
    read_s: float
    """What a reader is told to have."""


@dataclass
class LocalTicket:
    """A question that was asked."""

    answer: ReadAnswer | Declined
    is_open: Callable[[], bool]
    give_back: Callable[[str], None]

    def done(self) -> bool:
        """Whether the answer is out."""
        return self.is_open()

    def wait(self, seconds: float) -> None:
        """Nothing changes while a simulated step waits."""

    def result(self) -> ReadAnswer | Declined:
        """The answer."""
        return self.answer

    def cancel(self) -> None:
        """Give the lease back, if the answer grants it."""
        if isinstance(self.answer, ReadAnswer):
            self.give_back(self.answer.token)


@dataclass
class LocalReader:
    """Finds the owner of a lease by its host, which is the engine's id."""

    owner_of: Callable[[str], LocalOwner | None]
    is_open: Callable[[], bool]
    """Whether answers get through."""
    asked: list[tuple[str, int, str, str]] = field(default_factory=list)

    def ask(self, host: str, port: int, lease: str, token: str) -> LocalTicket:
        """Ask for the right to read, as over the listener's wire."""
        self.asked.append((host, port, lease, token))
        return LocalTicket(
            self._answer(host, port, lease, token),
            self.is_open,
            lambda of_reader: self.release(host, port, lease, of_reader),
        )

    def release(self, host: str, port: int, lease: str, token: str) -> None:
        """Give a lease back; a refusal is of no interest."""
        if (owner := self._owner(host, port)) is not None:
            with suppress(LeaseError):
                owner.book.release(lease, token)

    def finish(self, host: str, port: int, lease: str, token: str) -> None:
        """Tell that a lease has been read; a refusal is of no interest."""
        if (owner := self._owner(host, port)) is not None:
            with suppress(LeaseError):
                owner.book.finish_read(lease, token)

    def _answer(self, host: str, port: int, lease: str, token: str) -> ReadAnswer | Declined:
        if (owner := self._owner(host, port)) is None:
            return Declined("unreachable")
        try:
            held = owner.book.read(lease, token)
        except LeaseError as error:
            return Declined(error.code)
        return decode_read(encode_read(held, block_size=owner.block_size, deadline_s=owner.read_s))

    def _owner(self, host: str, port: int) -> LocalOwner | None:
        return self.owner_of(host) if port == LEASE_PORT else None
