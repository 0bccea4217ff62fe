"""The leases that there are: in order, counted, and each change recorded. Pure.

Neighbours: `table` has the rules by which leases change and is the only caller.
"""

import json

from disaggpair_connector.counters import Census, Counters
from disaggpair_connector.events import EventLog, EventType
from disaggpair_connector.heap import LeaseHeap
from disaggpair_connector.lease import ENCODE, EndReason, Lease, State, lease_text


class Ledger:
    """Keeps what follows from the leases in step with them.

    Args:
        epoch: names these leases among all that ever were.
        kept_events: how many events are kept.
        unix_offset_s: what to add to a time of a lease for unix seconds.
        now: the time.
    """

    def __init__(self, epoch: str, kept_events: int, unix_offset_s: float, now: float) -> None:
        self.epoch = epoch
        self.leases: dict[str, Lease] = {}
        self.census = Census()
        self.counters = Counters()
        self.log = EventLog(kept_events)
        self._unix_offset_s = unix_offset_s
        self._due = LeaseHeap(self.leases, lambda lease: lease.due)
        self._granted = LeaseHeap(
            self.leases, lambda lease: lease.serial if lease.state == "granted" else None
        )
        self._counted_until = now

    def first_due(self) -> Lease | None:
        """The lease that the clock changes first."""
        return self._due.first()

    def oldest_granted(self) -> Lease | None:
        """The granted lease that was granted first."""
        return self._granted.first()

    def oldest_claimed(self) -> Lease | None:
        """The claimed lease that was granted first; looks at all of them."""
        claimed = (lease for lease in self.leases.values() if lease.state == "claimed")
        return min(claimed, key=lambda lease: lease.serial, default=None)

    def add(self, lease: Lease) -> None:
        """A new lease, granted."""
        self.leases[lease.id] = lease
        self.counters.granted += 1
        self._enter(lease, "granted")

    def move(
        self, lease: Lease, state: State, event: EventType, deadline: float | None = None
    ) -> None:
        """A lease in another state, which lasts until its deadline at least."""
        self.census.remove(lease)
        lease.state = state
        lease.deadline = deadline
        lease.expires = max(lease.expires, lease.due)
        self._enter(lease, event)

    def end(self, lease: Lease, reason: EndReason) -> Lease:
        """A lease that is no more, as it was last."""
        del self.leases[lease.id]
        lease.ended = reason
        self.census.remove(lease)
        self.counters.ended[reason] += 1
        self.log.add("ended", lease.text, reason)
        return lease

    def count_until(self, now: float) -> None:
        """Count what has lasted since the last call. To be called before any change."""
        self.counters.block_seconds += self.census.blocks * (now - self._counted_until)
        self._counted_until = now

    def snapshot(self, now: float) -> list[bytes]:
        """What a listing has before the leases, and each lease."""
        head = b'{"epoch":%s,"sequence":%d,"now":%.3f,"counts":%s,"leases":[' % (
            json.dumps(self.epoch).encode(),
            self.log.sequence,
            now + self._unix_offset_s,
            ENCODE(self.census.counts).encode(),
        )
        return [head, *(lease.text for lease in self.leases.values())]

    def _enter(self, lease: Lease, event: EventType) -> None:
        self.census.add(lease)
        self._due.push(lease)
        self._granted.push(lease)
        lease.text = lease_text(lease, self._unix_offset_s)
        self.log.add(event, lease.text)


def joined(snapshot: list[bytes]) -> bytes:
    """The listing, one JSON object, that a snapshot holds in pieces."""
    return snapshot[0] + b",".join(snapshot[1:]) + b"]}"
