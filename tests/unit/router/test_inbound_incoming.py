"""Requests that are valid are found, however their bytes are cut."""

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disaggpair_bed.rawconnection import in_chunks, post, request
from disaggpair_bed.requestcheck import Recorder, found, in_pieces
from disaggpair_router.inbound.incoming import Incoming
from disaggpair_router.inbound.message import Head

OFFERS = {
    "none": [],
    "h2c": ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"],
    "websocket": ["Connection: keep-alive, Upgrade", "Upgrade: websocket"],
}
HEADERS = ["X-A: b", "X-A: c", "x-empty:", "Cookie:  a=b; c=d\t", "X-U: \u00e9 ", "Host:a"]
TARGETS = ["/", "/v1/chat/completions", "/a?b=c?d", "/?", "/%76%31?x=%0d%0a", "*"]
TRAILERS = ["X-T: 1", "Checksum: abc", "Host: b"]
EXTENSIONS = ["", ";a", ";a=b", ';a="b c"', ";a;b=c"]


@dataclass(frozen=True)
class Sent:
    """A request, and what has to be found of it."""

    raw: bytes
    found: tuple[Any, ...]
    body: bytes


@st.composite
def requests(draw: st.DrawFn, version: str = "1.1") -> Sent:
    method = draw(st.sampled_from(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS"]))
    target = draw(st.sampled_from(TARGETS))
    lines = [*draw(st.lists(st.sampled_from(HEADERS), max_size=4))]
    lines += OFFERS[draw(st.sampled_from(list(OFFERS)))]
    forms = ["none", "length", "chunks"] if version == "1.1" else ["none", "length"]
    form = draw(st.sampled_from(forms))
    pieces = draw(st.lists(st.binary(min_size=1, max_size=40), max_size=4))
    tail = b""
    if form == "length":
        zeros = "0" * draw(st.integers(0, 3))
        lines.append(f"Content-Length: {zeros}{sum(map(len, pieces))}{draw(spaces())}")
        tail = b"".join(pieces)
    elif form == "chunks":
        lines.append(f"Transfer-Encoding: {draw(st.sampled_from(['chunked', 'Chunked ']))}")
        for piece in [*pieces, b""]:
            extension = draw(st.sampled_from(EXTENSIONS)).encode()
            tail += b"%x%b\r\n%b" % (len(piece), extension, piece + b"\r\n" if piece else b"")
        trailers = draw(st.lists(st.sampled_from(TRAILERS), max_size=2))
        tail += "".join(f"{one}\r\n" for one in [*trailers, ""]).encode()
    lines = draw(st.permutations(lines))
    head = "\r\n".join([f"{method} {target} HTTP/{version}", *lines, "", ""])
    path, _, query = target.partition("?")
    fields = (
        (name, value.strip(" \t")) for name, _, value in (one.partition(":") for one in lines)
    )
    modern = version == "1.1"
    event = ("began", method, path, query, tuple(fields), modern, modern)
    before = b"\r\n" * draw(st.integers(0, 2))
    return Sent(before + head.encode() + tail, event, b"" if form == "none" else b"".join(pieces))


def spaces() -> st.SearchStrategy[str]:
    return st.text(" \t", max_size=3)


@given(
    st.lists(requests(), max_size=5),
    st.none() | requests("1.0"),
    st.integers(1, 80),
    st.integers(0, 80),
)
def test_the_same_requests_are_found_however_bytes_are_cut(
    sent: list[Sent], last: Sent | None, step: int, first: int
) -> None:
    if last is not None:
        sent = [*sent, last]
    expected: list[tuple[Any, ...]] = []
    for one in sent:
        expected.append(one.found)
        if one.body:
            expected.append(("body", one.body))
        expected.append(("complete",))
    stream = b"".join(one.raw for one in sent)
    assert found([stream]) == expected
    assert found(in_pieces(stream, step, first)) == expected


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        ("http://h:80/healthz?x=1", "/healthz", "x=1"),
        ("HTTPS://h/a/b", "/a/b", ""),
        ("http://h", "/", ""),
        ("http://h?x", "/", "x"),
        ("/a?http://h/b", "/a", "http://h/b"),
        ("/http://h/b", "/http://h/b", ""),
    ],
)
def test_a_target_may_be_a_whole_url(target: str, path: str, query: str) -> None:
    assert found([request(target)])[0][2:4] == (path, query)


def test_a_length_with_space_after_it_is_the_length_beside_an_offer() -> None:
    # Taken for no length, the body would be the next request, and somebody else's.
    inner = request("/inner")
    offer = [*OFFERS["h2c"], f"Content-Length: {len(inner)} "]
    events = found([request("/outer", *offer, method="POST") + inner])
    assert events[1:] == [("body", inner), ("complete",)]


@pytest.mark.parametrize("offer", ["h2c", "websocket"])
def test_a_body_in_chunks_may_follow_an_offer(offer: str) -> None:
    # As of Java's client for a body whose length it does not know.
    plain = in_chunks("/a", b"one", b"two") + request("/b")
    lines = "\r\n".join(["Host: a", *OFFERS[offer], ""]).encode()
    events = found([plain.replace(b"Host: a\r\n", lines, 1)])
    assert events[1:3] == [("body", b"onetwo"), ("complete",)]
    assert events[3:] == found([plain])[3:]


def test_what_stands_after_a_body_in_chunks_is_no_header() -> None:
    raw = in_chunks("/", b"a").removesuffix(b"\r\n") + b"Authorization: Bearer k\r\n\r\n"
    events = found([raw, request("/next")])
    assert [event[0] for event in events] == ["began", "body", "complete", "began", "complete"]
    assert dict(events[0][4]).keys() == {"Host", "Transfer-Encoding"}
    assert dict(events[3][4]).keys() == {"Host"}


@pytest.mark.parametrize(
    ("header", "keeps"), [("close", False), ("keep-alive", True), ("x, close", False)]
)
def test_a_client_says_whether_its_connection_is_kept(header: str, keeps: bool) -> None:
    assert found([request("/", f"Connection: {header}")])[0][5] is keeps


def test_bytes_that_are_no_text_stay_in_a_header() -> None:
    (_, value) = found([b"GET / HTTP/1.1\r\nX: a\xff\r\n\r\n"])[0][4][0]
    assert value.encode("utf-8", "surrogateescape") == b"a\xff"


def test_nothing_is_found_after_a_stop() -> None:
    recorder = Recorder()
    incoming = Incoming(recorder, "", 1_000)
    incoming.feed(request("/a"))
    incoming.stop()
    incoming.feed(request("/b"))
    assert len(recorder.found) == 2


@pytest.mark.parametrize("stops", ["began", "body", "complete"])
def test_a_receiver_may_stop_while_it_is_told_something(stops: str) -> None:
    class Stopping(Recorder):
        def began(self, head: Head, *, keeps: bool, chunked: bool) -> None:
            super().began(head, keeps=keeps, chunked=chunked)
            self.stop("began")

        def body(self, piece: bytes) -> None:
            super().body(piece)
            self.stop("body")

        def complete(self) -> None:
            super().complete()
            self.stop("complete")

        def stop(self, what: str) -> None:
            if what == stops:
                incoming.stop()

    recorder = Stopping()
    incoming = Incoming(recorder, "", 1_000)
    incoming.feed(post("/a", b"body") + post("/b", b"body"))
    assert recorder.found[-1][0] == stops
    assert sum(event[0] == "began" for event in recorder.found) == 1


@pytest.mark.parametrize("raises", ["began", "body", "complete", "failed"])
def test_an_error_of_the_receivers_is_not_taken_for_the_clients(raises: str) -> None:
    class Broken(Recorder):
        def __getattribute__(self, name: str) -> Any:
            if name == raises:
                raise ZeroDivisionError
            return super().__getattribute__(name)

    recorder = Broken()
    incoming = Incoming(recorder, "", 1_000)
    with pytest.raises(ZeroDivisionError):
        incoming.feed(post("/", b"a") + b"\0")
    assert incoming.is_broken
    assert ("failed", "malformed") not in recorder.found
