"""A question to a lease listener, and the ticket that its asker holds meanwhile."""

import ipaddress
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal

from disaggpair_connector import wire
from disaggpair_connector.contract import LEASE_ID
from disaggpair_connector.wire import Declined, ReadAnswer

Action = Literal["read", "finish", "release"]

_NAME: Final = re.compile(r"[0-9A-Za-z_]([0-9A-Za-z_.-]{0,251}[0-9A-Za-z_.])?")


@dataclass(frozen=True, slots=True, repr=False)  # without a repr, no token reaches a log
class Question:
    """Whom to ask for which lease."""

    host: str
    port: int
    lease: str
    token: str

    def is_sound(self) -> bool:
        """Whether it can be asked: a host and no part of a URL, a port, an id, a token."""
        return (
            is_host(self.host)
            and type(self.port) is int
            and 1 <= self.port <= 65_535
            and _is_like(LEASE_ID, self.lease)
            and _is_like(wire.TOKEN, self.token)
        )

    def by_reader(self, answer: ReadAnswer) -> "Question":
        """The same for the reader that the answer made of who asked."""
        return replace(self, token=answer.token)

    def request(self, action: Action) -> bytes:
        """The request, in one piece."""
        body = wire.encode_token(self.token)
        host = f"[{self.host}]" if ":" in self.host else self.host
        head = (
            f"POST /leases/{self.lease}/{action} HTTP/1.1\r\n"
            f"host: {host}:{self.port}\r\n"
            "content-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        return head.encode("ascii") + body


class Ticket:
    """A question that was asked. Only `wait` waits; all may be called from any thread.

    Args:
        question: what was asked.
        deadline: when it is declined if it has no answer.
        clock: of the deadline.
        give_back: releases the lease of a question.
    """

    def __init__(
        self,
        question: Question,
        deadline: float,
        clock: Callable[[], float],
        give_back: Callable[[Question], None],
    ) -> None:
        self.question = question
        self.deadline = deadline
        self._clock = clock
        self._give_back = give_back
        self._lock = threading.Lock()
        self._is_settled = threading.Event()
        self._result: ReadAnswer | Declined | None = None

    def done(self) -> bool:
        """Whether `result` has something to return; from the deadline on it has."""
        with self._lock:
            return self._settled() is not None

    def wait(self, seconds: float) -> None:
        """Wait until there is an answer, so long at most."""
        self._is_settled.wait(seconds)

    def result(self) -> ReadAnswer | Declined:
        """The answer, checked, or why there is none.

        Raises:
            RuntimeError: it is not done.
        """
        with self._lock:
            if (result := self._settled()) is None:
                raise RuntimeError("the question has no answer yet")
            return result

    def cancel(self) -> None:
        """Do without the read: the lease is released, at once or when the answer comes."""
        with self._lock:
            result, self._result = self._result, Declined("timeout")
        self._is_settled.set()
        if isinstance(result, ReadAnswer):
            self._give_back(self.question.by_reader(result))

    def settle(self, result: ReadAnswer | Declined) -> bool:
        """Take the result in; False if it comes too late. For the reader alone."""
        with self._lock:
            if self._settled() is not None:
                return False
            self._result = result
        self._is_settled.set()
        return True

    def _settled(self) -> ReadAnswer | Declined | None:
        if self._result is None and self._clock() >= self.deadline:
            self._result = Declined("timeout")
        return self._result


def is_host(host: object) -> bool:
    """Whether something is a name or an address, without a port, a path or anything else."""
    if not isinstance(host, str) or ":" not in host:
        return _is_like(_NAME, host)
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return host.isascii() and "%" not in host  # a zone is of use on its own machine only


def _is_like(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None
