"""What has to hold for any bytes that a client sends, in any pieces.

Called with bytes from hypothesis and from a fuzzer; raises AssertionError when something does not.
"""

from typing import Any

from disaggpair_router.inbound.incoming import Incoming
from disaggpair_router.inbound.message import Fault, Head

_HEAD_BYTES = 64 * 1024

Found = tuple[Any, ...]


class Recorder:
    """Keeps what was found (`incoming.Receiver`), a body as one piece."""

    def __init__(self) -> None:
        self.found: list[Found] = []

    def began(self, head: Head, *, keeps: bool, chunked: bool) -> None:
        """See `incoming.Receiver`."""
        fields = tuple(head.headers.items())
        self.found.append(("began", head.method, head.path, head.query, fields, keeps, chunked))

    def body(self, piece: bytes) -> None:
        """See `incoming.Receiver`."""
        if self.found[-1][0] == "body":
            piece = self.found.pop()[1] + piece
        self.found.append(("body", piece))

    def complete(self) -> None:
        """See `incoming.Receiver`."""
        self.found.append(("complete",))

    def failed(self, fault: Fault) -> None:
        """See `incoming.Receiver`."""
        self.found.append(("failed", fault))


def found(pieces: list[bytes], head_bytes: int = _HEAD_BYTES) -> list[Found]:
    """What is found in the pieces of one connection."""
    recorder = Recorder()
    incoming = Incoming(recorder, "10.0.0.1", head_bytes)
    for piece in pieces:
        incoming.feed(piece)
    return recorder.found


def in_pieces(data: bytes, step: int, first: int) -> list[bytes]:
    """Cut after the first bytes, then every so many."""
    return [data[:first], *(data[at : at + step] for at in range(first, len(data), step))]


def check(data: bytes) -> None:
    """The first two bytes choose where the others are cut."""
    if len(data) < 2:
        return
    step = 1 + data[0] % 64
    stream = data[2:]
    whole = found([stream])
    assert found(in_pieces(stream, step, data[1] % step)) == whole
    _check_order(whole)


def _check_order(events: list[Found]) -> None:
    """Each request has a head, maybe a body and its end; a failure is the last of all."""
    before = "complete"
    allowed = {
        "began": ("complete",),
        "body": ("began",),
        "complete": ("began", "body"),
        "failed": ("began", "body", "complete"),
    }
    for event in events:
        assert before in allowed[event[0]]
        before = event[0]
