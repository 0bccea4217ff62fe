"""How the lease listener reads bytes, and what it makes of bytes that are no request."""

import json
from collections.abc import Iterator

import pytest

from disaggpair_bed.fakes.rawhttp import BLOCK_SIZE, RawClient, grant, request
from disaggpair_connector.book import LeaseBook
from disaggpair_connector.listener import LeaseListener
from disaggpair_connector.listener_connection import Limits

KEY = "the-key"
LISTING = request("GET", "/leases", key=KEY)
HOST = b"host: d\r\n"


@pytest.fixture
def book() -> LeaseBook:
    return LeaseBook(epoch="e1", ttl_s=100, claim_s=10, read_s=20)


@pytest.fixture
def client(book: LeaseBook) -> Iterator[RawClient]:
    listener = LeaseListener(
        book,
        host="127.0.0.1",
        port=0,
        key=KEY,
        block_size=BLOCK_SIZE,
        read_s=20,
        limits=Limits(request_s=0.2),
    )
    with RawClient("127.0.0.1", listener.start()) as client:
        yield client
    listener.stop()


def code(body: bytes) -> str:
    found: str = json.loads(body)["error"]["code"]
    return found


def test_a_connection_serves_one_request_after_another(client: RawClient) -> None:
    for _ in range(3):
        client.send(LISTING)
        assert client.answer()[0] == 200


def test_requests_that_come_together_are_answered_in_order(
    client: RawClient, book: LeaseBook
) -> None:
    token = grant(book, "a").token
    body = json.dumps({"token": token}).encode()
    client.send(LISTING + request("POST", "/leases/a/release", body) + LISTING)
    assert [client.answer()[0] for _ in range(3)] == [200, 204, 200]


@pytest.mark.parametrize("size", [1, 7, 50])
def test_a_request_may_come_in_pieces(client: RawClient, book: LeaseBook, size: int) -> None:
    data = request("POST", "/leases/a/read", json.dumps({"token": grant(book, "a").token}).encode())
    for start in range(0, len(data), size):
        client.send(data[start : start + size])
    assert client.answer()[0] == 200


def test_an_answer_says_what_it_is_and_is_not_kept(client: RawClient) -> None:
    client.send(LISTING)
    status, fields = client.head()
    assert status == 200
    assert fields["content-type"] == "application/json"
    assert fields["cache-control"] == "no-store"
    assert fields["content-length"].isdigit()


def test_no_content_has_no_length(client: RawClient, book: LeaseBook) -> None:
    grant(book, "a")
    client.send(request("DELETE", "/leases/a", key=KEY))
    status, fields = client.head()
    assert status == 204
    assert fields.keys() == {"cache-control"}


def test_an_error_of_a_request_that_was_read_keeps_the_connection(client: RawClient) -> None:
    client.send(request("POST", "/leases/a/read", b"nonsense") + LISTING)
    assert client.answer()[0] == 400
    assert client.answer()[0] == 200


def test_a_body_of_a_get_is_taken_for_a_body(client: RawClient) -> None:
    client.send(request("GET", "/leases", b"GET /x HTTP/1.1\r\n\r\n", KEY) + LISTING)
    assert [client.answer()[0] for _ in range(2)] == [200, 200]


def test_a_client_that_ends_its_connection_gets_its_answer_first(client: RawClient) -> None:
    client.send(b"GET / HTTP/1.1\r\nhost: d\r\nConnection: x, Close\r\n\r\n" + LISTING)
    assert client.answer()[0] == 404


def test_a_connection_ends_after_the_answer_where_the_client_says_so(client: RawClient) -> None:
    client.send(
        b"GET /leases HTTP/1.1\r\nhost: d\r\nauthorization: Bearer the-key\r\n"
        b"connection: close\r\n\r\n"
    )
    assert client.answer()[0] == 200
    assert client.is_ended()


REFUSED: list[tuple[bytes, int, str]] = [
    (b"\r\n\r\n", 400, "request_line"),
    (b"GET /leases\r\n\r\n", 400, "request_line"),
    (b"get /leases HTTP/1.1\r\n" + HOST + b"\r\n", 400, "request_line"),
    (b"GET  /leases HTTP/1.1\r\n" + HOST + b"\r\n", 400, "request_line"),
    (b"GET http://d/leases HTTP/1.1\r\n" + HOST + b"\r\n", 400, "request_line"),
    (b"GET /leases HTTP/1.1 \r\n" + HOST + b"\r\n", 400, "request_line"),
    (b"GET /le\tases HTTP/1.1\r\n" + HOST + b"\r\n", 400, "request_line"),
    (b"GET /\xff HTTP/1.1\r\n" + HOST + b"\r\n", 400, "request_line"),
    (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400, "request_line"),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "request_line"),
    (b"GET / HTTP/1.0\r\n" + HOST + b"\r\n", 505, "version"),
    (b"GET / HTTP/1.2\r\n" + HOST + b"\r\n", 505, "version"),
    (b"GET / HTTP/1.1\r\n\r\n", 400, "host"),
    (b"GET / HTTP/1.1\r\n" + HOST + HOST + b"\r\n", 400, "head"),
    (b"GET / HTTP/1.1\r\n" + HOST + b" folded\r\n\r\n", 400, "head"),
    (b"GET / HTTP/1.1\r\n" + HOST + b"a : b\r\n\r\n", 400, "head"),
    (b"GET / HTTP/1.1\r\n" + HOST + b"a: b\nc: d\r\n\r\n", 400, "head"),
    (b"GET / HTTP/1.1\r\n" + HOST + b"a: b\rc\r\n\r\n", 400, "head"),
    (b"GET / HTTP/1.1\r\n" + HOST + b"a: b\0\r\n\r\n", 400, "head"),
    (b"GET / HTTP/1.1\r\n" + HOST + b"a\r\n\r\n", 400, "head"),
    (b"GET / HTTP/1.1\r\n" + HOST + b"a: b\r\n" * 64 + b"\r\n", 400, "head"),
    (b"GET / HTTP/1.1\r\n" + HOST + b"content-length: 1\r\n" * 2 + b"\r\n", 400, "head"),
    (b"GET / HTTP/1.1\r\n" + HOST + b"content-length: -1\r\n\r\n", 400, "head"),
    (b"GET / HTTP/1.1\r\n" + HOST + b"content-length: +1\r\n\r\n", 400, "head"),
    (b"GET / HTTP/1.1\r\n" + HOST + b"content-length: 1_0\r\n\r\n", 400, "head"),
    (b"GET / HTTP/1.1\r\n" + HOST + b"content-length: 1, 1\r\n\r\n", 400, "head"),
    (b"GET / HTTP/1.1\r\n" + HOST + b"content-length: 65537\r\n\r\n", 413, "body"),
    (b"GET / HTTP/1.1\r\n" + HOST + b"transfer-encoding: chunked\r\n\r\n", 411, "length"),
    (
        b"POST / HTTP/1.1\r\n" + HOST + b"content-length: 5\r\nTransfer-Encoding: x\r\n\r\n",
        411,
        "length",
    ),
    (b"GET / HTTP/1.1\r\n" + HOST + b"expect: 100-continue\r\n\r\n", 417, "expect"),
    (b"GET / HTTP/1.1\r\n" + HOST + b"a: " + b"b" * 9000 + b"\r\n\r\n", 431, "head"),
    (b"A" * 9000, 431, "head"),
]


@pytest.mark.parametrize(("data", "status", "error"), REFUSED, ids=lambda value: str(value)[:48])
def test_what_two_programs_could_read_differently_is_refused_and_ends_the_connection(
    client: RawClient, data: bytes, status: int, error: str
) -> None:
    client.send(data + LISTING)
    found, body = client.answer()
    assert (found, code(body)) == (status, error)
    assert client.is_ended()


@pytest.mark.parametrize(
    "data",
    [b"G", LISTING[:-1], request("POST", "/leases/a/read", b"{}")[:-1]],
    ids=["line", "head", "body"],
)
def test_a_request_that_does_not_come_to_its_end_is_refused(client: RawClient, data: bytes) -> None:
    client.send(data)
    status, body = client.answer()
    assert (status, code(body)) == (408, "late")
    assert client.is_ended()


def test_the_largest_body_is_read(client: RawClient) -> None:
    client.send(request("POST", "/leases/a/read", b'{"token":"a"}' + b" " * (65536 - 13)))
    status, body = client.answer()
    assert (status, code(body)) == (404, "unknown")


@pytest.mark.parametrize(
    "query",
    [
        "",
        "epoch=e1",
        "epoch=e1&since=",
        "epoch=e1&since=-1",
        "epoch=e1&since=1.0",
        "epoch=e1&since=%C2%B2",
        "epoch=e1&since=99999999999999999999",
        "epoch=e1&since=9999999999999999999",
        "epoch=e1&since=0&since=0",
        "epoch=e1&since=0&timeout=301",
        "epoch=e1&since=0&timeout=x",
        "epoch=%ff&since=0",
        "epoch=e1;since=0",
        "&".join(f"a{number}=1" for number in range(9)),
        "=",
    ],
)
def test_a_query_that_is_wrong_is_refused(client: RawClient, query: str) -> None:
    client.send(request("GET", f"/leases/watch?{query}", key=KEY))
    status, body = client.answer()
    assert (status, code(body)) == (400, "query")
