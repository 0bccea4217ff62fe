"""P's questions to the lease listeners of Ds, asked beside its scheduler, which never waits.

A read spends its lease: D answers one question about a lease and no second. So an answer that is
lost leaves nothing to read, and one that comes when nobody wants it any more is given back, for D
to free the blocks at once and not when the reader's time is over.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from disaggpair_connector import wire
from disaggpair_connector.reader_http import (
    Answer,
    Broken,
    Garbled,
    IdleConnections,
    Late,
    PeerConnection,
)
from disaggpair_connector.reader_questions import Questions, address_of
from disaggpair_connector.reader_ticket import Action, Question, Ticket
from disaggpair_connector.wire import Declined, DeclineReason, ReadAnswer

__all__ = ["Declined", "LeaseReader", "ReadAnswer", "Ticket"]

_CLOSE_S: Final = 2.0

_REASONS: Final[dict[int, DeclineReason]] = {
    403: "token",
    404: "unknown",
    409: "taken",
    503: "busy",
}

T = TypeVar("T")


class LeaseReader:
    """Threads that ask, and connections that are kept for the next question.

    Args:
        threads: questions asked at a time.
        waiting: questions that wait for a thread; more are declined at once. An engine adds all
            requests that came during a step together, which are hundreds.
        connect_s: for a connection.
        total_s: from `ask` to the result.
        idle_s: how long a connection is kept.
        silent_s: how long a peer is not asked that gave no answer within `connect_s` or more.
        clock: seconds that only grow.
        log: for faults of ours; nothing of a question or an answer is written.
    """

    def __init__(
        self,
        *,
        threads: int = 4,
        waiting: int = 4096,
        connect_s: float = 1.0,
        total_s: float = 3.0,
        idle_s: float = 30.0,
        silent_s: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
        log: logging.Logger | None = None,
    ) -> None:
        self._log = log or logging.getLogger(__name__)
        self._connect_s = connect_s
        self._total_s = total_s
        self._clock = clock
        self._asked = Questions(waiting, silent_s, clock)
        self._told: Waiting[tuple[Question, Action]] = Waiting(4 * waiting)
        self._idle = IdleConnections(idle_s, clock)
        self._used: set[PeerConnection] = set()
        self._lock = threading.Lock()
        self._is_closed = False
        runs = [self._ask_all] * threads + [self._tell_all]
        self._threads = [
            threading.Thread(target=run, name=f"disaggpair-reader-{number}", daemon=True)
            for number, run in enumerate(runs)
        ]
        for thread in self._threads:
            thread.start()

    def ask(self, host: str, port: int, lease: str, token: str) -> Ticket:
        """Ask a D for the right to read the blocks of a lease. Does not wait."""
        question = Question(host, port, lease, token)
        ticket = Ticket(question, self._clock() + self._total_s, self._clock, self._give_back)
        if not question.is_sound():
            ticket.settle(Declined("malformed"))
        elif (reason := self._asked.put(ticket)) is not None:
            ticket.settle(Declined(reason))
        return ticket

    def release(self, host: str, port: int, lease: str, token: str) -> None:
        """Tell a D that a lease is not wanted. Does not wait, and may be lost: leases also end."""
        question = Question(host, port, lease, token)
        if question.is_sound():
            self._give_back(question)

    def finish(self, host: str, port: int, lease: str, token: str) -> None:
        """Tell a D that its blocks have been read. Does not wait, and may be lost."""
        question = Question(host, port, lease, token)
        if question.is_sound():
            self._told.put((question, "finish"))

    def close(self) -> None:
        """End the threads; what has no answer yet is declined, what is not released lapses."""
        with self._lock:
            self._is_closed = True
            for connection in self._used:
                connection.shut()
        self._told.close()
        for ticket in self._asked.close():
            ticket.settle(Declined("unreachable"))
        end = time.monotonic() + _CLOSE_S
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        self._idle.close()

    def _give_back(self, question: Question) -> None:
        self._told.put((question, "release"))

    def _ask_all(self) -> None:
        while (ticket := self._asked.get()) is not None:
            if not ticket.done():  # neither cancelled nor too late
                result = self._ask(ticket)
                # The lease is being read by us, since D said so, and by nobody if this is dropped.
                if not ticket.settle(result) and isinstance(result, ReadAnswer):
                    self._give_back(ticket.question.by_reader(result))
            self._asked.end(ticket)

    def _ask(self, ticket: Ticket) -> ReadAnswer | Declined:
        """What is made of D's answer, or of none."""
        try:
            answer = self._exchange(ticket.question, "read", ticket.deadline)
            if answer.status != 200:
                return Declined(_REASONS.get(answer.status, "malformed"))
            return wire.decode_read(answer.body)
        except Broken:
            return Declined("unreachable")
        except Late:
            return Declined("timeout")
        except (Garbled, wire.Malformed):
            return Declined("malformed")
        except Exception:
            # A thread that ended would leave all later questions without an answer.
            self._log.exception("A question to a lease listener failed")
            return Declined("malformed")

    def _tell_all(self) -> None:
        while (told := self._told.get()) is not None:
            question, action = told
            if self._asked.is_silent(address_of(question)):
                continue
            try:
                self._exchange(question, action, self._clock() + self._total_s)
            except (Broken, Late, Garbled):
                continue
            except Exception:
                self._log.exception("The end of a lease could not be told")

    def _exchange(self, question: Question, action: Action, deadline: float) -> Answer:
        """Ask, and leave a peer alone that says nothing for as long as a connection may take.

        Raises:
            Broken, Late or Garbled: there is no answer.
        """
        started = self._clock()
        try:
            return self._ask_once(question, action, deadline)
        except (Broken, Late):
            if self._clock() - started >= self._connect_s:
                for ticket in self._asked.fell_silent(address_of(question)):
                    ticket.settle(Declined("unreachable"))
            raise

    def _ask_once(self, question: Question, action: Action, deadline: float) -> Answer:
        """Ask over a kept connection if there is one."""
        address = address_of(question)
        request = question.request(action)
        if (kept := self._idle.take(address)) is not None:
            try:
                return self._use(kept, question, request, deadline)
            except Broken as broken:
                # The listener ends connections that wait. Had it heard the question all the same,
                # it answers the second that the lease is taken.
                if broken.is_answered:
                    raise
        connect_s = min(self._connect_s, deadline - self._clock())
        if connect_s <= 0:
            raise Late
        fresh = PeerConnection(address, connect_s, self._clock)
        return self._use(fresh, question, request, deadline)

    def _use(
        self, connection: PeerConnection, question: Question, request: bytes, deadline: float
    ) -> Answer:
        with self._lock:
            if self._is_closed:
                connection.close()
                raise Broken(is_answered=False)
            self._used.add(connection)
        is_kept = False
        try:
            answer = connection.exchange(request, deadline)
            is_kept = not answer.is_last
            return answer
        finally:
            with self._lock:
                self._used.discard(connection)
            if is_kept and not self._is_closed:
                self._idle.put(address_of(question), connection)
            else:
                connection.close()


class Waiting(Generic[T]):
    """A queue between threads that takes so many and refuses more.

    Args:
        limit: items at a time.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._items: deque[T] = deque()
        self._changed = threading.Condition()
        self._is_closed = False

    def put(self, item: T) -> bool:
        """Add an item; False if it is full or closed."""
        with self._changed:
            if self._is_closed or len(self._items) >= self._limit:
                return False
            self._items.append(item)
            self._changed.notify()
            return True

    def get(self) -> T | None:
        """Wait for an item; None once it is closed."""
        with self._changed:
            while not self._items and not self._is_closed:
                self._changed.wait()
            return self._items.popleft() if self._items else None

    def close(self) -> list[T]:
        """Wake those that wait, for good, and return what nobody took."""
        with self._changed:
            self._is_closed = True
            left = list(self._items)
            self._items.clear()
            self._changed.notify_all()
            return left
