import pytest

from disaggpair_router.sse import EventSplitter, event_data


def split(*chunks: bytes) -> list[bytes]:
    splitter = EventSplitter(1_000)
    return [event for chunk in chunks for event in splitter.feed(chunk)]


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\r\n", b"\r\n\n"])
def test_an_event_ends_at_an_empty_line_of_any_kind(end: bytes) -> None:
    assert split(b"data: a" + end + b"data: b" + end) == [b"data: a" + end, b"data: b" + end]


def test_what_follows_the_last_of_many_events_is_held_back() -> None:
    splitter = EventSplitter(1_000)
    assert splitter.feed(b"data: a\n\ndata: b\n\n") == [b"data: a\n\n", b"data: b\n\n"]
    assert splitter.feed(b"data: a\n\n\n") == [b"data: a\n\n"]
    assert splitter.rest == b"\n"
    assert splitter.feed(b"\n") == [b"\n\n"]


def test_one_crlf_is_not_an_empty_line() -> None:
    assert split(b"data: a\r\ndata: b\r\n\r\n") == [b"data: a\r\ndata: b\r\n\r\n"]


def test_an_unfinished_event_is_held_back() -> None:
    splitter = EventSplitter(1_000)
    assert splitter.feed(b"data: a\n") == []
    assert splitter.rest == b"data: a\n"
    assert splitter.feed(b"\nda") == [b"data: a\n\n"]
    assert splitter.rest == b"da"


def test_a_line_feed_that_comes_late_follows_its_event() -> None:
    assert split(b"data: a\r\n\r", b"\ndata: b\r\n\r", b"data: c\n\n") == [
        b"data: a\r\n\r",
        b"\n",
        b"data: b\r\n\r",
        b"data: c\n\n",
    ]


def test_an_empty_read_changes_nothing() -> None:
    assert split(b"data: a\r\r", b"", b"\n") == [b"data: a\r\r", b"\n"]


def test_an_event_beyond_the_bound_is_refused() -> None:
    with pytest.raises(OverflowError, match="longer than 1000 bytes"):
        EventSplitter(1_000).feed(b"x" * 1_001)


@pytest.mark.parametrize(
    ("event", "data"),
    [
        (b"data: a\n\n", b"a"),
        (b"data:a\n\n", b"a"),
        (b"data: a\r\n\r\n", b"a"),
        (b"\ndata: a\n\n", b"a"),
        (b"data: a\ndata: b\n\n", b"a\nb"),
        (b"event: x\ndata: a\nid: 1\n\n", b"a"),
        (b"\xef\xbb\xbfdata: a\n\n", b"a"),
        (b": comment\n\n", b""),
        (b"\n\n", b""),
    ],
)
def test_the_data_of_an_event_is_its_data_lines(event: bytes, data: bytes) -> None:
    assert event_data(event) == data
