"""What is no request, or could be read as two, is refused once; nothing after it is read."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from disaggpair_bed.rawconnection import in_chunks, request
from disaggpair_bed.requestcheck import check, found, in_pieces

HOST = b"Host: a\r\n"
NEXT = request("/next")

HEADS = {
    # Two ways to find the end of the body.
    "a length and chunks": b"Content-Length: 5\r\nTransfer-Encoding: chunked",
    "chunks and a length": b"Transfer-Encoding: chunked\r\nContent-Length: 5",
    "two lengths": b"Content-Length: 5\r\nContent-Length: 6",
    "a length twice": b"Content-Length: 5\r\nContent-Length: 5",
    "a list of lengths": b"Content-Length: 5, 5",
    "a length with a sign": b"Content-Length: +5",
    "a negative length": b"Content-Length: -5",
    "a length with a space in it": b"Content-Length: 5 5",
    "an empty length": b"Content-Length: ",
    "a length in hexadecimal": b"Content-Length: 0x5",
    "a length over 64 bits": b"Content-Length: 99999999999999999999",
    "a length of many zeros": b"Content-Length: " + b"0" * 5_000 + b"5",
    "gzip": b"Transfer-Encoding: gzip",
    "gzip and chunked": b"Transfer-Encoding: gzip, chunked",
    "chunked and gzip": b"Transfer-Encoding: chunked, gzip",
    "chunked then gzip": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip",
    "chunked twice": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    "chunked then identity": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    "chunked then nothing": b"Transfer-Encoding: chunked\r\nTransfer-Encoding:",
    "xchunked": b"Transfer-Encoding: xchunked",
    "chunked with a parameter": b"Transfer-Encoding: chunked;q=1",
    "chunked after a control character": b"Transfer-Encoding: \x0bchunked",
    "chunked in quotes": b'Transfer-Encoding: "chunked"',
    "a space before the colon": b"Transfer-Encoding : chunked",
    "an encoding on the next line": b"Transfer-Encoding:\r\n chunked",
    # Lines that end otherwise.
    "a folded header": b"X: a\r\n b",
    "a header that begins with a space": b" X: a",
    "a line end without CR": b"X: a\nY: b",
    "a CR without a line end": b"X: a\rY: b",
    "a CR too many": b"X: a\r",
    "NUL in a value": b"X: a\0",
    "a control character in a value": b"X: a\x01",
    "NUL in a name": b"X\0: a",
    "a name without a colon": b"X",
    "a header without a name": b": a",
}

LINES = {
    "CONNECT": b"CONNECT a:443 HTTP/1.1",
    "no version": b"GET /",
    "0.9": b"GET / HTTP/0.9",
    "1.2": b"GET / HTTP/1.2",
    "2.0": b"GET / HTTP/2.0",
    "the preface of HTTP/2": b"PRI * HTTP/2.0",
    "a method that nobody knows": b"FETCH / HTTP/1.1",
    "a method in small letters": b"get / HTTP/1.1",
    "a tab": b"GET\t/ HTTP/1.1",
    "a space in the target": b"GET /a b HTTP/1.1",
    "a target without a slash": b"GET a HTTP/1.1",
    "a target beyond ASCII": b"GET /\xc3\xa9 HTTP/1.1",
    "NUL in the target": b"GET /\0 HTTP/1.1",
    "an empty target": b"GET  HTTP/1.1",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "an answer": b"HTTP/1.1 200 OK",
}

CHUNKS = {
    "a space after the size": b"5 \r\nhello\r\n0\r\n\r\n",
    "a size with a prefix": b"0x5\r\nhello\r\n0\r\n\r\n",
    "a negative size": b"-5\r\nhello\r\n0\r\n\r\n",
    "no size": b"\r\nhello\r\n0\r\n\r\n",
    "a size over 64 bits": b"10000000000000000\r\nhello\r\n0\r\n\r\n",
    "a size that ends without CR": b"5\nhello\r\n0\r\n\r\n",
    "an extension that ends without CR": b"5;a\nhello\r\n0\r\n\r\n",
    "no line end after the data": b"5\r\nhello0\r\n\r\n",
    "data longer than its size": b"5\r\nhello!\r\n0\r\n\r\n",
    "a length after the body": b"0\r\nContent-Length: 5\r\n\r\n",
    "an encoding after the body": b"0\r\nTransfer-Encoding: chunked\r\n\r\n",
}

OFFERS = [b"", b"Connection: Upgrade\r\nUpgrade: h2c\r\n"]


def refused(raw: bytes, began: int = 0) -> None:
    """One failure, and no other request, in one piece and byte by byte."""
    events = found([raw + NEXT])
    assert events == found(in_pieces(raw + NEXT, 1, 0))
    assert events[-1] == ("failed", "malformed")
    assert [event[0] for event in events].count("failed") == 1
    assert [event[0] for event in events].count("began") <= began
    assert ("complete",) not in events


@pytest.mark.parametrize("offer", OFFERS, ids=["plain", "offer"])
@pytest.mark.parametrize("case", HEADS)
def test_a_head_with_that_is_refused(case: str, offer: bytes) -> None:
    head = b"POST / HTTP/1.1\r\n" + HOST + offer + HEADS[case] + b"\r\n\r\n"
    refused(head + b"0\r\n\r\n")


def test_chunks_are_refused_in_http_1_0() -> None:
    refused(in_chunks("/", b"a").replace(b"HTTP/1.1", b"HTTP/1.0"))


@pytest.mark.parametrize("case", LINES)
def test_a_request_that_begins_with_that_is_refused(case: str) -> None:
    refused(LINES[case] + b"\r\n" + HOST + b"\r\n")


@pytest.mark.parametrize(
    "raw", [b"GET / HTTP/1.1\nHost: a\n\n", b"GET / HTTP/1.1\r\nHost: a\r\n\n"]
)
def test_lines_that_end_without_cr_are_refused(raw: bytes) -> None:
    refused(raw)


@pytest.mark.parametrize("offer", OFFERS, ids=["plain", "offer"])
@pytest.mark.parametrize("case", CHUNKS)
def test_a_body_in_chunks_with_that_is_refused(case: str, offer: bytes) -> None:
    head = in_chunks("/", last=False).replace(HOST, HOST + offer)
    refused(head + CHUNKS[case], began=1)


def test_a_connection_that_is_to_close_has_no_next_request() -> None:
    events = found([request("/", "Connection: close"), NEXT])
    assert [event[0] for event in events] == ["began", "complete", "failed"]


@given(st.binary(max_size=400))
@example(
    b"\0\0GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: a\r\nContent-Length: 3 \r\n\r\nabcd"
)
def test_arbitrary_bytes_raise_nothing(data: bytes) -> None:
    check(data)


PARTS = [
    *(one + b"\r\n" for one in HEADS.values() if len(one) < 100),
    *CHUNKS.values(),
    *(one + b"\r\n" for one in LINES.values()),
    *[b"GET / HTTP/1.1\r\n", b"POST /a HTTP/1.1\r\n", b"\r\n", b"5\r\nhello\r\n", b"hello", HOST],
    *[OFFERS[1], b"Content-Length: 5 \r\n", b"Transfer-Encoding: chunked\r\n", b"0\r\n\r\n"],
    *[b"Connection: close\r\n", b"Expect: 100-continue\r\n", b"GET / HTTP/1.0\r\n"],
]


@given(st.binary(min_size=2, max_size=2), st.lists(st.sampled_from(PARTS), max_size=12))
def test_parts_of_requests_in_any_order_raise_nothing(cuts: bytes, parts: list[bytes]) -> None:
    check(cuts + b"".join(parts))


LIMIT = 2_000


@pytest.mark.parametrize("step", [1, 100, 10_000])
@pytest.mark.parametrize(
    "raw",
    [
        request("/" + "a" * LIMIT),
        request("/", "X: " + "a" * LIMIT),
        request("/", *["X: " + "a" * 90] * 25),
    ],
    ids=["target", "header", "headers"],
)
def test_a_head_over_its_bound_is_refused_as_such(raw: bytes, step: int) -> None:
    assert found(in_pieces(raw, step, 0), LIMIT) == [("failed", "head_too_large")]


def test_a_head_over_its_bound_is_refused_before_its_end() -> None:
    raw = request("/", "X: " + "a" * LIMIT).removesuffix(b"\r\n\r\n")
    assert found(in_pieces(raw, 10, 0), LIMIT) == [("failed", "head_too_large")]


@pytest.mark.parametrize("step", [1, 10_000])
def test_a_head_within_its_bound_is_read(step: int) -> None:
    raw = request("/", "X: " + "a" * (LIMIT - 100))
    assert found(in_pieces(raw, step, 0), LIMIT)[-1] == ("complete",)


@pytest.mark.parametrize(("count", "last"), [(255, "complete"), (256, "failed"), (400, "failed")])
def test_a_head_has_at_most_256_fields(count: int, last: str) -> None:
    events = found([request("/", *["a: b"] * count)])
    assert events[-1][0] == last
    assert len(events) == (2 if last == "complete" else 1)


@pytest.mark.parametrize(
    ("before", "endless"),
    [
        (b"", b"\r\n"),
        (in_chunks("/", b"a", last=False) + b"0\r\nX: ", b"a"),
        (in_chunks("/", b"a", last=False) + b"0\r\n", b"X: a\r\n"),
        (in_chunks("/", b"a", last=False) + b"1;", b"a"),
    ],
    ids=["empty lines", "a trailer", "trailers", "an extension"],
)
def test_what_is_of_no_use_is_bounded(before: bytes, endless: bytes) -> None:
    events = found([before, *[endless] * (2 * LIMIT // len(endless))], LIMIT)
    assert events[-1] == ("failed", "malformed")


def test_a_body_in_small_chunks_is_not_bounded_by_its_sizes() -> None:
    raw = in_chunks("/", *[b"a"] * LIMIT)
    assert found(in_pieces(raw, 7, 0), LIMIT)[1:] == [("body", b"a" * LIMIT), ("complete",)]
