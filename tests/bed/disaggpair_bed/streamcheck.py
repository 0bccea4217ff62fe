"""What has to hold for any bytes that an engine sends as a stream, in any pieces.

Called with bytes from hypothesis and from a fuzzer; raises AssertionError when something does not.
"""

from typing import Final

import orjson

from disaggpair_connector.contract import KV_TRANSFER_PARAMS
from disaggpair_router.apis.shape import StreamShape
from disaggpair_router.apis.table import SHAPES
from disaggpair_router.relay import StreamRelay
from disaggpair_router.sse import EventSplitter, event_data

LIMIT_BYTES: Final = 2_048
"""Of an event; small, so that it is met."""

_SHAPES: Final = tuple(shape.stream for shape in SHAPES.values())
_KEY: Final = KV_TRANSFER_PARAMS.encode()


def check(data: bytes) -> None:
    """The first byte chooses an API, the second and third where the stream is cut."""
    if len(data) < 3:
        return
    shape, step, stream = _SHAPES[data[0] % len(_SHAPES)], 1 + data[1] % 64, data[3:]
    pieces = [stream[at : at + step] for at in range(data[2] % step, len(stream), step)]
    pieces.insert(0, stream[: data[2] % step])
    _check_splitter(stream, pieces)
    _check_relay(shape, stream, pieces)


def _check_splitter(stream: bytes, pieces: list[bytes]) -> None:
    whole, cut = EventSplitter(len(stream) + 1), EventSplitter(len(stream) + 1)
    events = [event for piece in pieces for event in cut.feed(piece)]
    assert b"".join(events) + cut.rest == stream
    found = [event_data(event) for event in whole.feed(stream)]
    assert list(filter(None, found)) == list(filter(None, map(event_data, events)))


def _check_relay(shape: StreamShape, stream: bytes, pieces: list[bytes]) -> None:
    out, relay = _relayed(shape, [stream])
    other, again = _relayed(shape, pieces)
    if out is None or other is None:
        return  # an event without an end; which bound it meets depends on the pieces
    assert other == out
    assert (again.params, again.error, again.done) == (relay.params, relay.error, relay.done)
    assert (again.usage, again.finish_reason) == (relay.usage, relay.finish_reason)
    assert again.is_clean == relay.is_clean
    assert again.answer() == relay.answer()
    _check_hidden(shape, out)


def _relayed(shape: StreamShape, pieces: list[bytes]) -> tuple[bytes | None, StreamRelay]:
    relay = StreamRelay(shape, max_event_bytes=LIMIT_BYTES, max_answer_bytes=LIMIT_BYTES)
    out: list[bytes] = []
    try:
        out += map(relay.feed, pieces)
    except OverflowError:
        return None, relay
    return b"".join(out), relay


def _check_hidden(shape: StreamShape, out: bytes) -> None:
    """No event that goes on to a client has transfer parameters where its API has them."""
    for event in EventSplitter(len(out) + 1).feed(out):
        if _KEY not in event:
            continue
        try:
            chunk = orjson.loads(event_data(event))
        except orjson.JSONDecodeError:
            continue
        place = shape.params_place(chunk) if isinstance(chunk, dict) else None
        assert place is None or place.get(KV_TRANSFER_PARAMS) is None
