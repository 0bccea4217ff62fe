"""The connections of the lease listener, at most so many."""

import threading

from disaggpair_connector.listener_connection import Connection


class Clients:
    """Which connections there are, and which of them wait for their client's next request.

    Where there are too many, the one that has waited longest gives its place to the next: clients
    keep connections to ask faster, and ask anew where one has ended. A connection is not ended
    once its request has begun.

    Args:
        limit: connections at a time.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._waiting: dict[Connection, None] = {}  # longest first
        self._answering: set[Connection] = set()
        self._ending: set[Connection] = set()
        self._is_shut = False

    def admit(self, connection: Connection) -> bool:
        """Take a new connection in, as one that waits; False if there is no place."""
        with self._lock:
            count = len(self._waiting) + len(self._answering) + len(self._ending)
            # Those that end need a moment for it, and are not waited for.
            if self._is_shut or count >= 2 * self._limit:
                return False
            if count - len(self._ending) >= self._limit:
                if not self._waiting:
                    return False
                self._end(next(iter(self._waiting)))
            self._waiting[connection] = None
            return True

    def begin(self, connection: Connection) -> bool:
        """A request has begun; False if its connection was ended before."""
        with self._lock:
            if connection not in self._waiting:
                return False
            del self._waiting[connection]
            self._answering.add(connection)
            return True

    def wait(self, connection: Connection) -> None:
        """The answer was sent."""
        with self._lock:
            self._answering.discard(connection)
            if self._is_shut:
                self._ending.add(connection)
            else:
                self._waiting[connection] = None

    def leave(self, connection: Connection) -> None:
        """The connection is over; its socket may be closed from here on."""
        with self._lock:
            self._waiting.pop(connection, None)
            self._answering.discard(connection)
            self._ending.discard(connection)

    def shut(self) -> None:
        """End all connections, also those that are being answered, and admit none."""
        with self._lock:
            self._is_shut = True
            for connection in [*self._waiting, *self._answering]:
                self._end(connection)

    def _end(self, connection: Connection) -> None:
        self._waiting.pop(connection, None)
        self._answering.discard(connection)
        self._ending.add(connection)
        connection.shut()
