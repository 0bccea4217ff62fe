"""The connector's lease listener with the faults that a test has switched on."""

import threading
from dataclasses import dataclass
from typing import Any, Final

from disaggpair_bed.simengine.faults import Fault, Faults
from disaggpair_connector.book import LeaseBook
from disaggpair_connector.listener import LeaseListener
from disaggpair_connector.listener_connection import Connection, Lost
from disaggpair_connector.listener_http import Refused, Request, answer
from disaggpair_connector.listener_routes import Routes, Watch

_LOOK_S: Final = 0.02

_ROUTES: Final = {
    "claim": "claim",
    "read": "read",
    "finish": "finish",
    "release": "give_back",
    "watch": "watch",
}


class FreezingBook(LeaseBook):
    """Leases of whose changes nobody is told while their engine is frozen."""

    def __init__(self, *, faults: Faults, **terms: Any) -> None:
        super().__init__(**terms)
        self._faults = faults

    def events(self, since: int) -> tuple[list[bytes], int]:
        """As before, once the engine moves."""
        self._faults.running.wait()
        return super().events(since)

    def wait(self, since: int, timeout_s: float) -> bool:
        """As before, once the engine moves."""
        found = super().wait(since, timeout_s)
        self._faults.running.wait()
        return found


@dataclass
class _Halt:
    """Ends what a fault waits for."""

    faults: Faults
    stopping: threading.Event

    def sleep(self, seconds: float) -> None:
        self.stopping.wait(seconds)

    def until_cleared(self) -> None:
        while not self.stopping.is_set() and not self.faults.cleared.wait(_LOOK_S):
            pass


class FaultyRoutes(Routes):
    """The listener's answers, some of them wrong."""

    def __init__(self, book: LeaseBook, *, faults: Faults, halt: _Halt, **settings: Any) -> None:
        super().__init__(book, **settings)
        self._faults = faults
        self._halt = halt

    def answer(self, request: Request) -> bytes | Watch:
        """As before, or what a fault makes of it."""
        self._faults.running.wait()
        route = route_of(request)
        if fault := self._faults.take("lease_slow", route):
            self._halt.sleep(fault.delay_s)
        if self._faults.take("lease_silent", route):
            self._halt.until_cleared()
        if self._faults.take("lease_drop", route):
            raise Lost
        if fault := self._faults.take("lease_status", route):
            raise _refusal(fault)
        if self._faults.take("lease_gone", route):
            raise Refused(410, "gone", "A fault of the test bed.")
        if self._faults.take("lease_garbage", route):
            return b"\x00 this is no HTTP \r\n\r\n"
        if self._faults.take("lease_malformed", route):
            return answer(200, b'{"leases": [')
        return super().answer(request)


def route_of(request: Request) -> str:
    """What a request is for, as a fault names it."""
    parts = request.head.path.strip("/").split("/")
    if request.head.method == "DELETE":
        return "release"
    return _ROUTES.get(parts[-1], "list")


def _refusal(fault: Fault) -> Refused:
    return Refused(fault.status, "fault", "A fault of the test bed.")


class FaultyListener(LeaseListener):
    """The listener of one engine."""

    def __init__(self, book: LeaseBook, *, faults: Faults, **settings: Any) -> None:
        super().__init__(book, **settings)
        self._halt = _Halt(faults, threading.Event())
        self._watching: set[Connection] = set()
        self._routes = FaultyRoutes(
            book,
            faults=faults,
            halt=self._halt,
            key=settings["key"],
            lease_port=settings["port"],
            block_size=settings["block_size"],
            read_s=settings["read_s"],
        )

    def stop(self) -> None:
        """As before; faults hold up nobody then."""
        self._halt.stopping.set()
        self._halt.faults.thaw()
        super().stop()

    def cut_watches(self) -> int:
        """Close the connections that watch; returns how many there were."""
        watching = tuple(self._watching)
        for connection in watching:
            connection.shut()
        return len(watching)

    def _stream(self, connection: Connection, watch: Watch) -> None:
        self._watching.add(connection)
        try:
            super()._stream(connection, watch)
        finally:
            self._watching.discard(connection)
