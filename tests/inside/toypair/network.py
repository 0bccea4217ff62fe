"""Between one engine's scheduler half and the other's book, without sockets and threads."""

import contextlib
from collections.abc import Callable
from typing import Literal

from disaggpair_connector import wire
from disaggpair_connector.book import LeaseBook
from disaggpair_connector.lease import LeaseError
from disaggpair_connector.reader_ticket import Question, Ticket
from disaggpair_connector.wire import Declined, ReadAnswer
from toypair.clock import CLOCK

Told = Literal["finish", "release"]

LISTENERS: dict[tuple[str, int], "ToyListener"] = {}
"""Those that listen, by address."""


class ToyListener:
    """In the place of an engine's listener."""

    def __init__(
        self,
        book: LeaseBook,
        *,
        host: str,
        port: int,
        key: str | None,
        block_size: int,
        read_s: float,
    ) -> None:
        self.book = book
        self._address = (host, port)
        self.address = f"{host}:{port}"
        self._block_size = block_size
        self._read_s = read_s

    def start(self) -> int:
        LISTENERS[self._address] = self
        return self._address[1]

    def stop(self) -> None:
        LISTENERS.pop(self._address, None)
        self.book.close()

    def read(self, lease: str, token: str) -> ReadAnswer | Declined:
        """What a reader gets for a question, after it was on the wire."""
        try:
            found = self.book.read(lease, token)
        except LeaseError as error:
            return Declined(error.code)
        body = wire.encode_read(found, block_size=self._block_size, deadline_s=self._read_s)
        return wire.decode_read(body)

    def tell(self, action: Told, lease: str, token: str) -> None:
        """What a reader said of the end."""
        with contextlib.suppress(LeaseError):
            if action == "finish":
                self.book.finish_read(lease, token)
            else:
                self.book.release(lease, token)


class ToyReader:
    """In the place of an engine's reader. Answers come at once, or when `deliver` is called."""

    def __init__(self) -> None:
        self.holds_answers = False
        self.loses: set[Told] = set()
        """What does not arrive."""
        self.told: list[tuple[Told, str]] = []
        """What was said, and of which lease."""
        self.asked: list[tuple[Ticket, Question]] = []
        self.on_answer: Callable[[ReadAnswer | Declined], None] = lambda answer: None
        self.total_s = 3.0

    def ask(self, host: str, port: int, lease: str, token: str) -> Ticket:
        question = Question(host, port, lease, token)
        ticket = Ticket(question, CLOCK() + self.total_s, CLOCK, self._give_back)
        if not question.is_sound():
            ticket.settle(Declined("malformed"))
            return ticket
        self.asked.append((ticket, question))
        if not self.holds_answers:
            self.deliver()
        return ticket

    def deliver(self) -> None:
        """Answer what is asked."""
        asked, self.asked = self.asked, []
        for ticket, question in asked:
            if ticket.done():  # it was cancelled, or is too late
                continue
            listener = LISTENERS.get((question.host, question.port))
            if listener is None:
                ticket.settle(Declined("unreachable"))
                continue
            answer = listener.read(question.lease, question.token)
            self.on_answer(answer)
            if not ticket.settle(answer) and isinstance(answer, ReadAnswer):
                self._give_back(question.by_reader(answer))

    def release(self, host: str, port: int, lease: str, token: str) -> None:
        self._tell("release", Question(host, port, lease, token))

    def finish(self, host: str, port: int, lease: str, token: str) -> None:
        self._tell("finish", Question(host, port, lease, token))

    def close(self) -> None:
        for ticket, _ in self.asked:
            ticket.settle(Declined("unreachable"))

    def _give_back(self, question: Question) -> None:
        self._tell("release", question)

    def _tell(self, action: Told, question: Question) -> None:
        if not question.is_sound():
            return
        self.told.append((action, question.lease))
        listener = LISTENERS.get((question.host, question.port))
        if listener is not None and action not in self.loses:
            listener.tell(action, question.lease, question.token)
