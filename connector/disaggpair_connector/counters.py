"""What the leases come to, in numbers. Pure."""

from dataclasses import dataclass, field, replace
from typing import get_args

from disaggpair_connector.lease import EndReason, Lease, State


def _no_ends() -> dict[EndReason, int]:
    return dict.fromkeys(get_args(EndReason), 0)


def _no_states() -> dict[State, int]:
    return dict.fromkeys(get_args(State), 0)


@dataclass(slots=True)
class Counters:
    """Since the table was made; these only grow."""

    granted: int = 0
    claims_won: int = 0
    claims_lost: int = 0
    """Claims of a lease that is not granted, or none."""

    reads: int = 0
    directs: int = 0
    """Tokens redeemed by readers and by direct turns."""

    refused: int = 0
    """Tokens that were not redeemed: of no lease, not the lease's, or used."""

    lapsed: int = 0
    """Claims that were not used in time."""

    ended: dict[EndReason, int] = field(default_factory=_no_ends)
    block_seconds: float = 0.0
    """Blocks in leases, times the seconds that they were."""

    def copy(self) -> "Counters":
        """As they are now."""
        return replace(self, ended=dict(self.ended))


@dataclass(slots=True)
class Census:
    """What there is at a time: how many leases in each state, and their blocks."""

    counts: dict[State, int] = field(default_factory=_no_states)
    blocks: int = 0
    granted_blocks: int = 0

    def add(self, lease: Lease) -> None:
        """Count a lease in."""
        self._change(lease, 1)

    def remove(self, lease: Lease) -> None:
        """Count a lease out, in the state in which it was counted in."""
        self._change(lease, -1)

    def _change(self, lease: Lease, by: int) -> None:
        blocks = by * lease.blocks
        self.counts[lease.state] += by
        self.blocks += blocks
        if lease.state == "granted":
            self.granted_blocks += blocks
