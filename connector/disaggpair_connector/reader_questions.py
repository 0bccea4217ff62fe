"""The questions that wait for a thread, in order, so that a silent peer does not hold up the rest.

A peer that is gone without a word (its machine is off, or stands still) takes a thread for as long
as a connection may take. So each peer has a part of the threads, and one that gave no answer in
that time is not asked for a while.
"""

import threading
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

from disaggpair_connector.reader_http import Address
from disaggpair_connector.reader_ticket import Question, Ticket
from disaggpair_connector.wire import DeclineReason

AT_A_TIME: Final = 2
"""Questions to one peer."""


class Questions:
    """A queue between the scheduler's thread and those that ask.

    Args:
        limit: questions that wait.
        silent_s: for how long a silent peer is not asked.
        clock: seconds that only grow.
    """

    def __init__(self, limit: int, silent_s: float, clock: Callable[[], float]) -> None:
        self._limit = limit
        self._silent_s = silent_s
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: dict[Address, deque[Ticket]] = {}  # the peer that comes next first
        self._count = 0
        self._asking: Counter[Address] = Counter()
        self._silent_until: dict[Address, float] = {}
        self._is_closed = False

    def put(self, ticket: Ticket) -> DeclineReason | None:
        """Add a question, or say why it is not asked."""
        address = address_of(ticket.question)
        with self._changed:
            if self._is_closed or self._is_silent(address):
                return "unreachable"
            if self._count >= self._limit:
                return "busy"
            self._waiting.setdefault(address, deque()).append(ticket)
            self._count += 1
            self._changed.notify()
            return None

    def get(self) -> Ticket | None:
        """Wait for a question whose peer has a place; None once it is closed."""
        with self._changed:
            while not self._is_closed:
                if (ticket := self._next()) is not None:
                    return ticket
                self._changed.wait()
            return None

    def end(self, ticket: Ticket) -> None:
        """Give the place of a question back that was got."""
        address = address_of(ticket.question)
        with self._changed:
            self._asking[address] -= 1
            if not self._asking[address]:
                del self._asking[address]
            self._changed.notify()

    def is_silent(self, address: Address) -> bool:
        """Whether a peer is not to be asked now."""
        with self._changed:
            return self._is_silent(address)

    def fell_silent(self, address: Address) -> list[Ticket]:
        """A peer gave no answer in time; the questions that waited for it, which are not asked."""
        with self._changed:
            now = self._clock()
            over = [peer for peer, until in self._silent_until.items() if until <= now]
            for peer in over:
                del self._silent_until[peer]
            self._silent_until[address] = now + self._silent_s
            left = self._waiting.pop(address, deque())
            self._count -= len(left)
            return list(left)

    def close(self) -> list[Ticket]:
        """Wake those that wait, for good, and return what nobody took."""
        with self._changed:
            self._is_closed = True
            left = [ticket for waiting in self._waiting.values() for ticket in waiting]
            self._waiting.clear()
            self._count = 0
            self._changed.notify_all()
            return left

    def _is_silent(self, address: Address) -> bool:
        return self._silent_until.get(address, self._clock()) > self._clock()

    def _next(self) -> Ticket | None:
        free = (peer for peer in self._waiting if self._asking[peer] < AT_A_TIME)
        if (address := next(free, None)) is None:
            return None
        waiting = self._waiting.pop(address)
        ticket = waiting.popleft()
        if waiting:
            self._waiting[address] = waiting  # behind the other peers
        self._asking[address] += 1
        self._count -= 1
        return ticket


def address_of(question: Question) -> Address:
    """Where a question goes."""
    return question.host, question.port
