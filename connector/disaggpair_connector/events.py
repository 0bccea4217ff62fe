"""The last changes of the leases, in order. Pure."""

import json
from collections import deque
from itertools import islice
from typing import Literal

from disaggpair_connector.lease import EndReason

EventType = Literal["granted", "claimed", "lapsed", "reading", "ended"]


class Gone(Exception):
    """The events asked for are not kept any more, or never were: list anew."""


class EventLog:
    """Numbered from 1 without a gap; the oldest are dropped beyond `kept`."""

    def __init__(self, kept: int) -> None:
        self._kept: deque[tuple[EventType, EndReason | None, bytes]] = deque(maxlen=kept)
        self.sequence = 0
        """Number of the last event, 0 before the first."""

    def add(self, type_: EventType, reason: EndReason | None, lease: bytes) -> None:
        """Add an event.

        Args:
            type_: what happened.
            reason: why a lease ended.
            lease: the lease as JSON, after the change, or before it if it ended.
        """
        self.sequence += 1
        self._kept.append((type_, reason, lease))

    def since(self, sequence: int) -> list[bytes]:
        """A line of JSON for each event after that number.

        Raises:
            Gone: the first of them was dropped, or the number is none of this log.
        """
        count = self.sequence - sequence
        if not 0 <= count <= len(self._kept):
            raise Gone(f"events after {sequence} are not kept")
        newest = list(islice(reversed(self._kept), count))
        return [
            b'{"sequence":%d,"type":"%s","reason":%s,"lease":%s}\n'
            % (number, type_.encode(), json.dumps(reason).encode(), lease)
            for number, (type_, reason, lease) in enumerate(reversed(newest), sequence + 1)
        ]
