"""What happens to D's stream on its way to the client. Pure: bytes in, bytes out.

Events pass through byte for byte. Three things are changed: the transfer parameters are taken
out, the stream ends before an error event (the caller sends its own in place of the engine's
words), and an event that never ended is dropped. Chunks are parsed only when they can matter; the
text of the answer is put together once, at its end.
"""

from typing import Any

import orjson

from disaggpair_connector.contract import KV_TRANSFER_PARAMS
from disaggpair_router.answer import Answer
from disaggpair_router.apis.shape import Learned, StreamShape
from disaggpair_router.sse import EventSplitter, event_data, is_one_event

_KEY = KV_TRANSFER_PARAMS.encode()
# Inside a JSON string the quotes would be escaped, so these bytes are always a member. vLLM 0.33
# puts them into every chunk but the last.
_EMPTY_MEMBER = b',"' + _KEY + b'":null'
_DATA_STARTS = (b"data:", b"\xef\xbb\xbfdata:")


class StreamRelay(Learned):
    """One stream. `feed` gives what goes on to the client; the rest is learned on the way.

    Of the answer up to `max_answer_bytes` are kept for `answer`; with less than 0, nothing is.
    """

    def __init__(self, shape: StreamShape, *, max_event_bytes: int, max_answer_bytes: int) -> None:
        super().__init__()
        self._shape = shape
        self._splitter = EventSplitter(max_event_bytes)
        self._answer_room = max_answer_bytes
        self._datas: list[bytes] = []

    @property
    def is_clean(self) -> bool:
        """Whether the stream ended as a finished answer does."""
        return (
            self.done
            and self.error is None
            and self.finish_reason in self._shape.endings
            and not self._splitter.rest.strip()
        )

    def feed(self, chunk: bytes) -> bytes:
        """Bytes for the client; OverflowError when an event exceeds its bound."""
        is_whole = self._splitter.is_empty
        if is_whole and is_one_event(chunk):  # as vLLM writes them, and mostly as they come
            return self._pass(chunk, chunk[6:-2])
        if is_whole and self._shape.has_params_in_chunks and _is_plain(chunk):
            chunk = chunk.replace(_EMPTY_MEMBER, b"")
        events = self._splitter.feed(chunk)
        return b"".join([self._pass(event, event_data(event)) for event in events])

    def answer(self) -> Answer | None:
        """What D said; None when it was longer than this relay keeps."""
        if self._answer_room < 0:
            return None
        return self._shape.answer(chunk for chunk in map(_object, self._datas) if chunk)

    def _pass(self, event: bytes, data: bytes) -> bytes:
        if self.error is not None:
            return b""
        if not data:
            return event
        if data == b"[DONE]":
            self.done = True
            return event
        if _KEY in event:
            event, data = self._without_params(event, data)
        if self._shape.matters.search(data):
            self._shape.learn(_object(data), self)
            if self.error is not None:
                return b""
        if self._answer_room >= 0 and self._shape.has_answer(data):
            self._keep(data)
        return event

    def _without_params(self, event: bytes, data: bytes) -> tuple[bytes, bytes]:
        if self._shape.has_params_in_chunks:
            event = event.replace(_EMPTY_MEMBER, b"")
            data = event_data(event)
            if _KEY not in event:
                return event, data
        chunk = _object(data)
        place = self._shape.params_place(chunk)
        if place is None or KV_TRANSFER_PARAMS not in place:
            return event, data  # the model talks about them
        params = place.pop(KV_TRANSFER_PARAMS)
        if params is not None:
            self.params = params
        data = orjson.dumps(chunk)
        return _with_data(event, data), data

    def _keep(self, data: bytes) -> None:
        self._answer_room -= len(data)
        if self._answer_room < 0:
            self._datas.clear()
        else:
            self._datas.append(data)


def _is_plain(chunk: bytes) -> bool:
    """Whether these bytes are whole events of one line of data each, so that all of it is data."""
    events = chunk.count(b"\n\n")
    return (
        chunk.startswith(b"data: ")
        and chunk.endswith(b"\n\n")
        and chunk.count(b"\n") == 2 * events
        and chunk.count(b"\ndata: ") == events - 1
        and b"\r" not in chunk
    )


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _with_data(event: bytes, data: bytes) -> bytes:
    """The event with its data lines replaced by one; every other byte stays."""
    lines = event.splitlines(keepends=True)
    first = next(index for index, line in enumerate(lines) if line.startswith(_DATA_STARTS))
    ending = lines[first][len(lines[first].rstrip(b"\r\n")) :]
    others = [line for line in lines[first + 1 :] if not line.startswith(b"data:")]
    return b"".join([*lines[:first], b"data: ", data, ending, *others])
