"""Clients are bounded in number and time, and a stop leaves nothing behind."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from disaggpair_bed.fakes.rawhttp import BLOCK_SIZE, RawClient, grant, request
from disaggpair_connector.book import LeaseBook
from disaggpair_connector.listener import LeaseListener, listening_socket
from disaggpair_connector.listener_clients import Clients
from disaggpair_connector.listener_connection import Connection, Limits
from disaggpair_connector.listener_http import Refused

KEY = "the-key"
LISTING = request("GET", "/leases", key=KEY)
WATCH = request("GET", "/leases/watch?epoch=e1&since=0", key=KEY)


@pytest.fixture
def book() -> LeaseBook:
    return LeaseBook(epoch="e1", ttl_s=100, claim_s=10, read_s=20)


class Served:
    """Listeners, and clients of the last one, that end with the test."""

    def __init__(self, book: LeaseBook, stack: ExitStack) -> None:
        self.port = 0
        self.threads_before = set(threading.enumerate())
        self._book = book
        self._stack = stack

    def start(self, limits: Limits) -> LeaseListener:
        listener = LeaseListener(
            self._book,
            host="127.0.0.1",
            port=0,
            key=KEY,
            block_size=BLOCK_SIZE,
            read_s=20,
            limits=limits,
        )
        self.port = listener.start()
        self._stack.callback(listener.stop)
        return listener

    def client(self) -> RawClient:
        return self._stack.enter_context(RawClient("127.0.0.1", self.port))

    def ask_until_served(self) -> None:
        """Try again for the moment that the listener needs to see others go.

        Until they have gone it may refuse (503), or end this connection for a newer one (0, or an
        error), upon which a client is to ask anew.
        """
        status = 503
        while status in (0, 503):
            with RawClient("127.0.0.1", self.port) as client, suppress(ConnectionError):
                status = ask(client)
        assert status == 200

    def threads(self) -> int:
        return len(set(threading.enumerate()) - self.threads_before)


@pytest.fixture
def served(book: LeaseBook) -> Iterator[Served]:
    with ExitStack() as stack:
        yield Served(book, stack)


def ask(client: RawClient) -> int:
    client.send(LISTING)
    return client.answer()[0]


def test_a_client_above_the_limit_is_told_to_come_later(served: Served) -> None:
    served.start(Limits(connections=2))
    watching = [served.client(), served.client()]
    for client in watching:
        client.send(WATCH)
        assert client.head()[0] == 200
    third = served.client()
    status, body = third.answer()
    assert (status, json.loads(body)["error"]["code"]) == (503, "busy")
    assert third.is_ended()


def test_a_place_that_is_left_is_given_again(served: Served) -> None:
    served.start(Limits(connections=1))
    for _ in range(5):
        served.ask_until_served()


def test_a_client_that_waits_gives_its_place_to_a_new_one(served: Served) -> None:
    served.start(Limits(connections=1))
    first = served.client()
    assert ask(first) == 200
    served.ask_until_served()
    assert first.is_ended()


def test_silent_clients_keep_nobody_out(served: Served) -> None:
    served.start(Limits(connections=4))
    for _ in range(20):
        served.client()
    served.ask_until_served()


def test_a_client_that_says_nothing_at_first_is_left(served: Served) -> None:
    served.start(Limits(first_s=0.02))
    assert served.client().is_ended()


def test_a_client_that_says_nothing_more_is_left_later(served: Served) -> None:
    served.start(Limits(first_s=30, idle_s=0.02))
    client = served.client()
    assert ask(client) == 200
    assert client.is_ended()


def test_half_a_request_ends_in_the_time_of_a_request_however_it_drips() -> None:
    times = iter(range(0, 1000, 6))  # seconds, each time that it is asked
    ours, theirs = socket.socketpair()
    with ours, theirs:
        connection = Connection(ours, Limits(request_s=10), lambda: next(times))
        theirs.send(LISTING[:5])
        assert connection.wait()
        theirs.send(LISTING[5:-1])
        with pytest.raises(Refused) as caught:
            connection.request()
    assert caught.value.status == 408
    assert next(times) == 18


def test_threads_are_no_more_than_twice_the_connections(served: Served) -> None:
    served.start(Limits(connections=2))
    for _ in range(50):
        served.ask_until_served()
    assert served.threads() <= 5 + 2  # one that is free, and those kept for what comes


def test_a_stop_ends_every_connection_and_thread_and_frees_the_port(served: Served) -> None:
    listener = served.start(Limits())
    silent, half, waiting, watching = (served.client() for _ in range(4))
    half.send(LISTING[:-1])
    assert ask(waiting) == 200
    watching.send(WATCH)
    assert watching.head()[0] == 200
    listener.stop()
    assert served.threads() == 0
    for client in (silent, half, waiting, watching):
        with suppress(ConnectionResetError):  # of a client that was not accepted yet
            while client.socket.recv(100):
                continue
    listening_socket("127.0.0.1", served.port).close()


def test_a_stop_ends_a_client_that_does_not_read(served: Served, book: LeaseBook) -> None:
    lease = grant(book, "a", tokens=2**22)
    listener = served.start(Limits(send_s=60))
    client = served.client()
    client.send(request("POST", "/leases/a/read", json.dumps({"token": lease.token}).encode()))
    assert client.head()[0] == 200
    listener.stop()
    assert served.threads() == 0


def test_after_a_stop_nobody_is_served(served: Served) -> None:
    listener = served.start(Limits())
    listener.stop()
    with pytest.raises(OSError, match="refused"):
        served.client()


class FakeConnection:
    """Counts how often it was ended."""

    def __init__(self) -> None:
        self.ends = 0

    def shut(self) -> None:
        self.ends += 1


def connections(count: int) -> list[Any]:
    return [FakeConnection() for _ in range(count)]


def test_a_request_that_has_begun_is_not_ended_for_another_client() -> None:
    clients = Clients(1)
    first, second = connections(2)
    assert clients.admit(first)
    assert clients.begin(first)
    assert not clients.admit(second)
    assert first.ends == 0


def test_who_waits_longest_gives_its_place_away() -> None:
    clients = Clients(2)
    first, second, third = connections(3)
    clients.admit(first)
    clients.admit(second)
    clients.begin(first)
    clients.wait(first)
    assert clients.admit(third)
    assert [first.ends, second.ends] == [0, 1]


def test_no_request_is_answered_on_a_connection_that_gave_its_place_away() -> None:
    clients = Clients(1)
    first, second = connections(2)
    assert clients.admit(first)
    assert clients.admit(second)
    assert first.ends == 1
    assert not clients.begin(first)
    assert clients.begin(second)


def test_connections_that_have_not_ended_yet_are_bounded_too() -> None:
    clients = Clients(2)
    admitted = [clients.admit(connection) for connection in connections(6)]
    assert admitted == [True] * 4 + [False] * 2


def test_after_the_end_nobody_is_admitted() -> None:
    clients = Clients(2)
    first, second, third = connections(3)
    clients.admit(first)
    clients.admit(second)
    clients.begin(second)
    clients.shut()
    assert [first.ends, second.ends] == [1, 1]
    assert not clients.admit(third)
    clients.wait(second)
    assert not clients.begin(second)
    clients.leave(first)
    clients.leave(second)


def test_a_system_without_another_thread_serves_with_those_there_are(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.start(Limits())

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        clients = [served.client() for _ in range(3)]
        assert [ask(client) for client in clients] == [200] * 3
        clients[0].socket.shutdown(socket.SHUT_RDWR)
        assert ask(served.client()) == 200
    assert ask(clients[1]) == 200  # whoever answers looks for more
    assert ask(served.client()) == 200
