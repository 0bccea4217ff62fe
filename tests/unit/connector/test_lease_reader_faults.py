"""Whatever answers at a lease port, P gets a sound answer or a reason, in time."""

import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from disaggpair_bed.fakes.rawhttp import (
    BLOCK_SIZE,
    BOUND_S,
    ScriptedServer,
    answer,
    answering,
    ending,
    ending_unanswered,
    grant,
)
from disaggpair_connector import wire
from disaggpair_connector.book import LeaseBook
from disaggpair_connector.reader import LeaseReader
from disaggpair_connector.reader_ticket import Question, is_host
from disaggpair_connector.wire import Declined, ReadAnswer

LEASE = grant(LeaseBook(epoch="e", ttl_s=100, claim_s=10, read_s=20), "a")
GOOD = answer(200, wire.encode_read(LEASE, block_size=BLOCK_SIZE, deadline_s=20))
TAKEN = answer(409, b'{"error":{}}')


@pytest.fixture
def reader() -> Iterator[LeaseReader]:
    reader = LeaseReader(threads=1)
    yield reader
    reader.close()


def ask(reader: LeaseReader, server: ScriptedServer) -> ReadAnswer | Declined:
    ticket = reader.ask(server.host, server.port, "a", "the-token")
    end = time.monotonic() + BOUND_S
    while not ticket.done():
        assert time.monotonic() < end
        time.sleep(0.001)
    return ticket.result()


def actions(requests: list[bytes]) -> list[str]:
    return [request.split(b" ")[1].decode() for request in requests]


def test_a_question_is_one_plain_request(reader: LeaseReader) -> None:
    with ScriptedServer(answering(GOOD)) as server:
        assert isinstance(ask(reader, server), ReadAnswer)
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert head.decode().split("\r\n") == [
        "POST /leases/a/read HTTP/1.1",
        f"host: 127.0.0.1:{server.port}",
        "content-type: application/json",
        "content-length: 21",
    ]
    assert json.loads(body) == {"token": "the-token"}


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (403, "token"),
        (404, "unknown"),
        (409, "taken"),
        (503, "busy"),
        (400, "malformed"),
        (401, "malformed"),
        (204, "malformed"),
        (302, "malformed"),
        (500, "malformed"),
    ],
)
def test_each_status_has_its_reason_and_releases_nothing(
    reader: LeaseReader, status: int, reason: wire.DeclineReason
) -> None:
    reply = b"HTTP/1.1 204 X\r\n\r\n" if status == 204 else answer(status, b"anything")
    with ScriptedServer(answering(reply, GOOD)) as server:
        assert ask(reader, server) == Declined(reason)
        assert isinstance(ask(reader, server), ReadAnswer)
    assert actions(server.requests) == ["/leases/a/read"] * 2
    assert server.connections == 1


NO_ANSWER = [
    b"nonsense\r\n\r\n",
    b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/2 200\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/1.1 20 OK\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n" + GOOD,
    b"HTTP/1.1 200 OK\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\nx",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n folded\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 65 + b"content-length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\na: " + b"b" * 80_000,
    b"\x15\x03\x01\x00\x02\x02\x16\r\n\r\n",
    GOOD + b"more",
]


@pytest.mark.parametrize("data", NO_ANSWER, ids=lambda data: repr(data[:40]))
def test_what_is_no_answer_is_malformed_and_ends_the_connection(
    reader: LeaseReader, data: bytes
) -> None:
    with ScriptedServer(answering(data), answering(GOOD)) as server:
        assert ask(reader, server) == Declined("malformed")
        assert isinstance(ask(reader, server), ReadAnswer)
    assert server.connections == 2


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"\xff", b"{" * 5000], ids=len)
def test_a_read_that_p_cannot_use_is_malformed(reader: LeaseReader, body: bytes) -> None:
    with ScriptedServer(answering(answer(200, body), GOOD)) as server:
        assert ask(reader, server) == Declined("malformed")
        assert isinstance(ask(reader, server), ReadAnswer)
    assert server.connections == 1


def cut(data: bytes) -> Callable[[socket.socket, ScriptedServer], None]:
    def play(sock: socket.socket, server: ScriptedServer) -> None:
        server.receive(sock)
        sock.sendall(data)
        sock.shutdown(socket.SHUT_RDWR)

    return play


@pytest.mark.parametrize("length", [1, 10, 60, 200])
def test_an_answer_that_breaks_off_is_not_asked_for_again(reader: LeaseReader, length: int) -> None:
    with ScriptedServer(cut(GOOD[:length]), answering(GOOD)) as server:
        assert ask(reader, server) == Declined("unreachable")
    assert len(server.requests) == 1


def test_a_kept_connection_that_breaks_off_within_an_answer_is_not_asked_again(
    reader: LeaseReader,
) -> None:
    def play(sock: socket.socket, server: ScriptedServer) -> None:
        answering(GOOD)(sock, server)
        cut(GOOD[:50])(sock, server)

    with ScriptedServer(play, answering(GOOD)) as server:
        assert isinstance(ask(reader, server), ReadAnswer)
        assert ask(reader, server) == Declined("unreachable")
    assert len(server.requests) == 2


def test_a_fresh_connection_without_an_answer_is_not_asked_again(reader: LeaseReader) -> None:
    with ScriptedServer(ending_unanswered, answering(GOOD)) as server:
        assert ask(reader, server) == Declined("unreachable")
    assert len(server.requests) == 1


def test_a_kept_connection_that_ends_without_a_byte_is_asked_anew_once(
    reader: LeaseReader,
) -> None:
    def play(sock: socket.socket, server: ScriptedServer) -> None:
        answering(GOOD)(sock, server)
        ending_unanswered(sock, server)

    with ScriptedServer(play, answering(TAKEN)) as server:
        assert isinstance(ask(reader, server), ReadAnswer)
        # Had the first been heard, the lease is spent and the second says so.
        assert ask(reader, server) == Declined("taken")
    assert len(server.requests) == 3


def test_asked_anew_without_an_answer_it_is_unreachable(reader: LeaseReader) -> None:
    def play(sock: socket.socket, server: ScriptedServer) -> None:
        answering(GOOD)(sock, server)
        ending_unanswered(sock, server)

    with ScriptedServer(play, ending_unanswered, answering(GOOD)) as server:
        assert isinstance(ask(reader, server), ReadAnswer)
        assert ask(reader, server) == Declined("unreachable")
    assert len(server.requests) == 3


def test_a_connection_that_d_ends_with_its_answer_is_not_kept(reader: LeaseReader) -> None:
    last = GOOD.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)
    with ScriptedServer(ending(last), answering(GOOD)) as server:
        assert isinstance(ask(reader, server), ReadAnswer)
        assert isinstance(ask(reader, server), ReadAnswer)
    assert server.connections == 2


def test_a_connection_on_which_something_came_unasked_is_not_used_again(
    reader: LeaseReader,
) -> None:
    answered = threading.Event()

    def play(sock: socket.socket, server: ScriptedServer) -> None:
        answering(GOOD)(sock, server)
        assert answered.wait(BOUND_S)
        sock.sendall(GOOD)

    with ScriptedServer(play, answering(TAKEN)) as server:
        assert isinstance(ask(reader, server), ReadAnswer)
        answered.set()
        kept = reader._idle._kept[0][2]
        end = time.monotonic() + BOUND_S
        while kept.is_quiet():
            assert time.monotonic() < end
        assert ask(reader, server) == Declined("taken")


def test_a_kept_connection_is_left_in_time() -> None:
    now = [0.0]
    reader = LeaseReader(threads=1, idle_s=30, clock=lambda: now[0])
    with ScriptedServer(answering(GOOD, GOOD), answering(GOOD)) as server:
        assert isinstance(ask(reader, server), ReadAnswer)
        now[0] = 29.0
        assert isinstance(ask(reader, server), ReadAnswer)
        assert server.connections == 1
        now[0] = 60.0
        assert isinstance(ask(reader, server), ReadAnswer)
        assert server.connections == 2
    reader.close()


def silent(sock: socket.socket, server: ScriptedServer) -> None:
    server.receive(sock)


def dripping(sock: socket.socket, server: ScriptedServer) -> None:
    server.receive(sock)
    sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
    while True:
        sock.sendall(b" ")
        time.sleep(0.001)


@pytest.mark.parametrize("play", [silent, dripping])
def test_no_answer_takes_longer_than_its_bound(play: Any) -> None:
    reader = LeaseReader(threads=1, total_s=0.1)
    with ScriptedServer(play) as server:
        assert ask(reader, server) == Declined("timeout")
        # The only thread is free again, so the next question gets to the server.
        ask(reader, server)
        server.wait_for_requests(2)
        reader.close()


def test_a_port_where_nobody_listens_is_unreachable(reader: LeaseReader) -> None:
    with ScriptedServer(silent) as server:
        pass
    assert ask(reader, server) == Declined("unreachable")


def test_a_name_that_nobody_has_is_unreachable(reader: LeaseReader) -> None:
    with ScriptedServer(silent) as server:
        server.host = "no-such-host.invalid"
        assert ask(reader, server).reason in ("unreachable", "timeout")  # type: ignore[union-attr]  # an error has one


@pytest.mark.parametrize(
    "change",
    [
        {"host": ""},
        {"host": "http://10.0.0.1"},
        {"host": "10.0.0.1:80"},
        {"host": "user@host"},
        {"host": "host/path"},
        {"host": "host name"},
        {"host": "host\r\nx: y"},
        {"host": "[::1]"},
        {"host": "::1%eth0"},
        {"host": "hôte"},
        {"host": "-host"},
        {"host": "a" * 300},
        {"host": None},
        {"host": b"host"},
        {"port": 0},
        {"port": 65_536},
        {"port": -1},
        {"port": "80"},
        {"port": 80.0},
        {"port": True},
        {"lease": ""},
        {"lease": "a/b"},
        {"lease": "a b"},
        {"lease": ".."},
        {"lease": "a?b"},
        {"lease": "a\r\n"},
        {"lease": "a" * 129},
        {"lease": 5},
        {"token": ""},
        {"token": "a b"},
        {"token": "a\n"},
        {"token": "a" * 257},
        {"token": None},
    ],
    ids=str,
)
def test_a_handle_that_names_something_else_is_never_connected_to(
    reader: LeaseReader, change: dict[str, Any]
) -> None:
    handle: dict[str, Any] = {"host": "127.0.0.1", "port": 9, "lease": "a", "token": "t"}
    assert Question(**handle).is_sound()
    ticket = reader.ask(**{**handle, **change})
    assert ticket.done()
    assert ticket.result() == Declined("malformed")
    reader.release(**{**handle, **change})
    reader.finish(**{**handle, **change})


@pytest.mark.parametrize(
    "host", ["10.0.0.1", "fd00::1", "::1", "::ffff:10.0.0.1", "d-0.d.ns.svc.cluster.local", "a_b"]
)
def test_addresses_and_names_of_a_cluster_are_hosts(host: str) -> None:
    assert is_host(host)


def test_releases_that_cannot_be_sent_are_given_up(reader: LeaseReader) -> None:
    with ScriptedServer(silent) as server:
        pass
    for _ in range(3):
        reader.release(server.host, server.port, "a", "the-token")
    with ScriptedServer(answering(answer(204), answer(204))) as server:
        reader.release(server.host, server.port, "a", "the-token")
        reader.finish(server.host, server.port, "a", "the-token")
        told = server.wait_for_requests(2)
    assert actions(told) == ["/leases/a/release", "/leases/a/finish"]


def test_a_fault_of_ours_costs_one_question_and_logs_no_token(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, reader: LeaseReader
) -> None:
    caplog.set_level(logging.DEBUG)

    def fail(body: bytes) -> Any:
        raise RuntimeError("broken")

    with ScriptedServer(answering(GOOD, GOOD)) as server:
        with monkeypatch.context() as patched:
            patched.setattr(wire, "decode_read", fail)
            assert ask(reader, server) == Declined("malformed")
        assert isinstance(ask(reader, server), ReadAnswer)
    assert "broken" in caplog.text
    assert "the-token" not in caplog.text


def test_a_question_shows_no_token() -> None:
    assert "the-token" not in repr(Question("h", 1, "a", "the-token"))
