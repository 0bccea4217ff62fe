"""A watch tells every event once, in order, and holds up nobody when it is not read."""

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from disaggpair_bed.fakes.rawhttp import BLOCK_SIZE, BOUND_S, RawClient, grant, request
from disaggpair_connector.book import LeaseBook
from disaggpair_connector.listener import LeaseListener
from disaggpair_connector.listener_connection import Limits

KEY = "the-key"
LONG = Limits(bookmark_s=60)


def serve(book: LeaseBook, limits: Limits) -> LeaseListener:
    listener = LeaseListener(
        book, host="127.0.0.1", port=0, key=KEY, block_size=BLOCK_SIZE, read_s=20, limits=limits
    )
    listener.start()
    return listener


def new_book(kept_events: int = 16384) -> LeaseBook:
    return LeaseBook(epoch="e1", ttl_s=100, claim_s=10, read_s=20, kept_events=kept_events)


@pytest.fixture
def book() -> LeaseBook:
    return new_book()


@pytest.fixture
def listener(book: LeaseBook) -> Iterator[LeaseListener]:
    listener = serve(book, LONG)
    yield listener
    listener.stop()


def client_of(listener: LeaseListener, receive_bytes: int | None = None) -> RawClient:
    host, _, port = listener.address.rpartition(":")
    return RawClient(host, int(port), receive_bytes)


def watch(client: RawClient, since: int, query: str = "") -> tuple[int, dict[str, str]]:
    client.send(request("GET", f"/leases/watch?epoch=e1&since={since}{query}", key=KEY))
    return client.head()


class Lines:
    """The lines of a watch, one at a time."""

    def __init__(self, client: RawClient) -> None:
        self._client = client
        self._kept: list[Any] = []

    def next(self) -> Any:
        """None at the end."""
        if not self._kept:
            self._kept = [json.loads(line) for line in self._client.chunk().splitlines()]
        return self._kept.pop(0) if self._kept else None


def test_a_watch_tells_what_was_and_then_what_happens(
    book: LeaseBook, listener: LeaseListener
) -> None:
    grant(book, "a")
    grant(book, "b")
    with client_of(listener) as client:
        status, fields = watch(client, since=1)
        assert (status, fields["content-type"]) == (200, "application/x-ndjson")
        lines = Lines(client)
        first = lines.next()
        assert (first["sequence"], first["type"], first["lease"]["id"]) == (2, "granted", "b")
        book.claim("a", "read")
        second = lines.next()
        assert (second["sequence"], second["type"]) == (3, "claimed")
        book.release("b")
        third = lines.next()
        assert (third["type"], third["reason"], third["lease"]["id"]) == ("ended", "released", "b")


def test_a_watch_without_events_begins_with_a_bookmark(
    book: LeaseBook, listener: LeaseListener
) -> None:
    grant(book, "a")
    with client_of(listener) as client:
        watch(client, since=1)
        assert Lines(client).next() == {"sequence": 1}


def test_a_watch_has_a_bookmark_where_nothing_happens(book: LeaseBook) -> None:
    listener = serve(book, Limits(bookmark_s=0.01))
    with client_of(listener) as client:
        watch(client, since=0)
        lines = Lines(client)
        assert [lines.next() for _ in range(3)] == [{"sequence": 0}] * 3
    listener.stop()


def test_a_watch_ends_in_its_time_and_leaves_the_connection(
    book: LeaseBook, listener: LeaseListener
) -> None:
    with client_of(listener) as client:
        watch(client, since=0, query="&timeout=0")
        lines = Lines(client)
        assert [lines.next(), lines.next()] == [{"sequence": 0}, None]
        client.send(request("GET", "/leases", key=KEY))
        assert client.answer()[0] == 200


def test_no_event_is_lost_or_told_twice_while_many_happen(
    book: LeaseBook, listener: LeaseListener
) -> None:
    count = 2000

    def happen() -> None:
        for number in range(count // 2):
            grant(book, f"lease-{number}", tokens=1)
            book.release(f"lease-{number}")

    thread = threading.Thread(target=happen)
    with client_of(listener) as client:
        watch(client, since=0)
        lines = Lines(client)
        thread.start()
        told: list[int] = []
        while len(told) < count:
            line = lines.next()
            if "type" in line:
                told.append(line["sequence"])
    thread.join(BOUND_S)
    assert told == list(range(1, count + 1))


@pytest.mark.parametrize("since", [0, 1, 4, 100])
def test_events_that_are_not_kept_or_never_were_are_gone(since: int) -> None:
    book = new_book(kept_events=1)
    listener = serve(book, LONG)
    for name in ("a", "b", "c"):
        grant(book, name)
    with client_of(listener) as client:
        client.send(request("GET", f"/leases/watch?epoch=e1&since={since}", key=KEY))
        status, body = client.answer()
        assert (status, json.loads(body)["error"]["code"]) == (410, "gone")
    listener.stop()


@pytest.mark.parametrize("epoch", ["e0", "", "e1%20"])
def test_another_epoch_is_gone(listener: LeaseListener, epoch: str) -> None:
    with client_of(listener) as client:
        client.send(request("GET", f"/leases/watch?epoch={epoch}x&since=0", key=KEY))
        assert client.answer()[0] == 410


def test_a_watch_that_falls_behind_ends_and_is_told_so_when_it_comes_back() -> None:
    book = new_book(kept_events=4)
    listener = serve(book, LONG)
    with client_of(listener) as client:
        watch(client, since=0)
        lines = Lines(client)
        assert lines.next() == {"sequence": 0}
        with book._changed:  # nobody is woken before all has happened
            for number in range(20):
                book._table.grant(
                    id=f"lease-{number}",
                    conversation=None,
                    tokens=1,
                    block_ids=[[1]],
                    digests=grant(new_book(), "x", tokens=1).digests,
                    handle={},
                    divisible=True,
                    pinned=None,
                )
            book._changed.notify_all()
        assert lines.next() is None
        assert watch(client, since=0)[0] == 410
    listener.stop()


def test_a_watcher_that_does_not_read_is_dropped_and_holds_up_neither_book_nor_others() -> None:
    book = new_book(kept_events=1_000_000)
    listener = serve(book, Limits(bookmark_s=60, send_s=0.05))
    with client_of(listener, receive_bytes=4096) as deaf, client_of(listener) as other:
        watch(deaf, since=0)
        watch(other, since=0)
        lines = Lines(other)
        while len(listener._clients._answering) == 2:
            name = f"lease-{book.sequence}"
            grant(book, name, tokens=1, conversation="c" * 250)
            book.release(name)
            while (event := lines.next()).get("type") != "ended":
                continue
            assert event["lease"]["id"] == name
    listener.stop()


def test_more_watches_than_the_limit_come_later_and_the_rest_still_works(book: LeaseBook) -> None:
    listener = serve(book, Limits(watches=1, bookmark_s=60))
    with client_of(listener) as first, client_of(listener) as second:
        watch(first, since=0)
        Lines(first).next()
        second.send(request("GET", "/leases/watch?epoch=e1&since=0", key=KEY))
        assert second.answer()[0] == 503
        second.send(request("GET", "/leases", key=KEY))
        assert second.answer()[0] == 200
    listener.stop()


def test_a_watch_of_a_client_that_left_gives_its_place_back(book: LeaseBook) -> None:
    listener = serve(book, Limits(watches=1, bookmark_s=0.01))
    with client_of(listener) as first:
        watch(first, since=0)
        Lines(first).next()
        first.socket.shutdown(socket.SHUT_RDWR)
    with client_of(listener) as second:
        status = 503
        while status == 503:
            second.send(request("GET", "/leases/watch?epoch=e1&since=0&timeout=0", key=KEY))
            status, _ = second.answer()
    assert status == 200
    listener.stop()


def test_a_stop_ends_a_watch_at_once(book: LeaseBook, listener: LeaseListener) -> None:
    with client_of(listener) as client:
        watch(client, since=0)
        Lines(client).next()
        listener.stop()
        while client.socket.recv(100):
            continue
