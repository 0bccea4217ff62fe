"""The last changes of the leases, in order. Pure."""

from collections import deque
from itertools import islice
from typing import Literal, NamedTuple

from disaggpair_connector.lease import EndReason

EventType = Literal["granted", "claimed", "lapsed", "reading", "ended"]


class Gone(Exception):
    """The events asked for are not kept any more, or never were: list anew."""


class Event(NamedTuple):
    """A change of a lease."""

    sequence: int
    type: EventType
    reason: EndReason | None
    """Why it ended."""

    lease: bytes
    """The lease as JSON after the change; as it was before if it ended."""


class EventLog:
    """Numbered from 1 without a gap; the oldest are dropped beyond `kept`."""

    def __init__(self, kept: int) -> None:
        self._kept: deque[Event] = deque(maxlen=kept)
        self.sequence = 0
        """Number of the last event, 0 before the first."""

    def add(self, type_: EventType, lease: bytes, reason: EndReason | None = None) -> None:
        """Add what happened to a lease."""
        self.sequence += 1
        self._kept.append(Event(self.sequence, type_, reason, lease))

    def since(self, sequence: int) -> list[Event]:
        """The events after that number.

        Raises:
            Gone: the first of them was dropped, or the number is none of this log.
        """
        count = self.sequence - sequence
        if not 0 <= count <= len(self._kept):
            raise Gone(f"events after {sequence} are not kept")
        return list(islice(reversed(self._kept), count))[::-1]


def event_line(event: Event) -> bytes:
    """An event as a line of JSON, with its line end."""
    sequence, type_, reason, lease = event
    return b'{"sequence":%d,"type":"%s","reason":%s,"lease":%s}\n' % (
        sequence,
        type_.encode(),
        b'"%s"' % reason.encode() if reason else b"null",
        lease,
    )
