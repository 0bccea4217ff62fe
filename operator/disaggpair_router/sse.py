"""Cutting a byte stream into server-sent events, for any way the bytes arrive. Pure.

`relay` passes events on; this module only finds where one ends and what its data is. Bytes are
never changed: the concatenation of all events and of `rest` is the input.
"""

import re

# A line may end in CRLF, LF or CR, and an event ends at an empty line. The groups are atomic:
# without that, the halves of one CRLF would count as two line ends.
_END = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_LF_END = b"\n\n"
_BOM = b"\xef\xbb\xbf"
_TAIL = 3
"""An end is at most four bytes, so a new read can complete one that began three bytes before."""


class EventSplitter:
    """Collects reads and gives back whole events, each with the empty line that ends it.

    When a read ends between the CR and the LF of an event's last line end, the event is given
    back at once and the LF follows as one of its own, which means nothing to a reader.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._held = bytearray()
        self._ended_in_cr = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Events completed by `chunk`; OverflowError when one grows beyond the limit."""
        # What engines send: whole events with LF, which need no search byte by byte.
        is_whole = not self._held and not self._ended_in_cr and chunk.endswith(_LF_END)
        if is_whole and b"\r" not in chunk and len(chunk) <= self._limit_bytes:
            return self._lf_events(chunk)
        events: list[bytes] = []
        if self._ended_in_cr and chunk:
            self._ended_in_cr = False
            if chunk.startswith(b"\n"):
                events.append(b"\n")
                chunk = chunk[1:]
        held = self._held
        start = max(0, len(held) - _TAIL)
        held += chunk
        taken = 0
        while end := _END.search(held, start):
            start = end.end()
            events.append(bytes(held[taken:start]))
            taken = start
        if taken:
            del held[:taken]
            self._ended_in_cr = not held and events[-1].endswith(b"\r")
        if len(held) > self._limit_bytes:
            raise OverflowError(f"an event is longer than {self._limit_bytes} bytes")
        return events

    def _lf_events(self, chunk: bytes) -> list[bytes]:
        """The events of bytes that end with an empty line and have LF only."""
        if chunk.find(_LF_END) == len(chunk) - 2:
            return [chunk]
        *pieces, rest = chunk.split(_LF_END)
        self._held += rest
        return [piece + _LF_END for piece in pieces]

    @property
    def is_empty(self) -> bool:
        """Whether the next byte begins an event."""
        return not self._held and not self._ended_in_cr

    @property
    def rest(self) -> bytes:
        """Bytes after the last complete event; not empty at the end means a cut stream."""
        return bytes(self._held)


def is_one_event(chunk: bytes) -> bool:
    """Whether these bytes are an event of one line of data, `chunk[6:-2]`, with LF only."""
    return (
        chunk.find(b"\n") == len(chunk) - 2
        and chunk.endswith(_LF_END)
        and chunk.startswith(b"data: ")
        and b"\r" not in chunk
    )


def event_data(event: bytes) -> bytes:
    """The event's data lines joined by LF; empty for comments and other fields."""
    if is_one_event(event):
        return event[6:-2]
    lines = event.removeprefix(_BOM).splitlines()
    return b"\n".join(line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:"))
