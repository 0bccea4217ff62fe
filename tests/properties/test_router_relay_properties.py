"""The relay gives the same bytes and finds the same handle, however the bytes arrive."""

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from disaggpair_bed.fakes.upstream import chat_events, decode_handle
from disaggpair_router.apis.completions import CompletionStream
from disaggpair_router.relay import StreamRelay
from disaggpair_router.sse import EventSplitter, event_data

LINE_ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
LINES = st.one_of(
    st.binary(max_size=12).map(lambda raw: raw.translate(None, b"\r\n")),
    st.sampled_from([b"data: x", b"data:", b": note", b"event: y", b"data: [DONE]", b""]),
)
STREAMS = st.lists(st.tuples(LINES, LINE_ENDS), max_size=20).map(
    lambda lines: b"".join(line + end for line, end in lines)
)


def pieces(stream: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    return [stream[start:end] for start, end in pairwise(places)]


def fed(stream: bytes, cuts: list[int]) -> tuple[bytes, StreamRelay]:
    relay = StreamRelay(CompletionStream(), max_event_bytes=2**20, max_answer_bytes=2**20)
    return b"".join(relay.feed(piece) for piece in pieces(stream, cuts)), relay


@given(STREAMS, st.lists(st.integers(min_value=0), max_size=8))
@example(b"data: a\r\n\r\ndata: b\r\n\r\n", [9, 10, 11])
def test_no_byte_is_lost_or_added_by_splitting(stream: bytes, cuts: list[int]) -> None:
    splitter = EventSplitter(2**20)
    events = [event for piece in pieces(stream, cuts) for event in splitter.feed(piece)]
    assert b"".join(events) + splitter.rest == stream


@given(STREAMS, st.lists(st.integers(min_value=0), max_size=8))
def test_the_data_does_not_depend_on_the_reads(stream: bytes, cuts: list[int]) -> None:
    whole, cut = EventSplitter(2**20), EventSplitter(2**20)
    expected = [data for event in whole.feed(stream) if (data := event_data(event))]
    found = [
        data
        for piece in pieces(stream, cuts)
        for event in cut.feed(piece)
        if (data := event_data(event))
    ]
    assert found == expected


@given(st.text(max_size=30), st.sampled_from([b"\n", b"\r\n", b"\r"]), st.data())
def test_h22_every_split_gives_the_same_bytes_and_the_same_handle(
    text: str, end: bytes, data: st.DataObject
) -> None:
    stream = b": hello\n\n" + chat_events(decode_handle(), text)
    stream = stream.replace(b"\n", end)
    expected, _ = fed(stream, [])
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=10))
    out, relay = fed(stream, cuts)
    assert out == expected
    assert b"kv_transfer_params" not in out.replace(text.encode(), b"")
    assert relay.params == decode_handle()
    assert relay.is_clean
    answer = relay.answer()
    assert answer is not None
    assert answer.text == text


def test_h22_one_byte_at_a_time() -> None:
    stream = chat_events(decode_handle()).replace(b"\n", b"\r\n")
    out, relay = fed(stream, list(range(len(stream))))
    assert out == fed(stream, [])[0]
    assert relay.params == decode_handle()
    assert relay.is_clean
