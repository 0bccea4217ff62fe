"""The leases of one engine: who may have which blocks, until when.

    granted ── claim ──► claimed ── read ──► reading ── finish, deadline ──► ended
       ▲                    │
       └───── deadline ─────┘

A granted lease may be read without a claim, too; a direct turn redeems its token and stays claimed
until it is finished. A granted lease ends when it expires or is reclaimed, a claimed one when an
engine that stands still reclaims it, any by a release; a reset ends those that are not being read.

Pure: the clock and the tokens come in. Every method first does what is due by the clock, so no
result depends on how often `sweep` is called.
"""

from collections.abc import Callable
from typing import Unpack

from disaggpair_connector.counters import Counters
from disaggpair_connector.events import Event, Gone
from disaggpair_connector.lease import (
    EndReason,
    Lease,
    LeaseError,
    Purpose,
    Refusal,
    State,
    Terms,
    granted,
)
from disaggpair_connector.ledger import Ledger, joined

__all__ = ["Gone", "LeaseTable"]


class LeaseTable:
    """The leases and what happened to them.

    Args:
        clock: seconds that never go back.
        new_token: something that nobody can guess, another at each call.
        epoch: names this table among all that ever were.
        ttl_s: how long a granted lease lasts.
        claim_s: how long a claim protects a lease, and a redeemed direct claim again.
        read_s: how long a reader may take.
        grace_s: how much longer its blocks are kept than it is told.
        kept_events: how many events are kept.
        unix_offset_s: what to add to the clock for unix seconds, in JSON.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        new_token: Callable[[], str],
        epoch: str,
        ttl_s: float,
        claim_s: float,
        read_s: float,
        grace_s: float = 2.0,
        kept_events: int = 16384,
        unix_offset_s: float = 0.0,
    ) -> None:
        self.epoch = epoch
        self._clock = clock
        self._new_token = new_token
        self._ttl_s = ttl_s
        self._claim_s = claim_s
        self._read_s = read_s + grace_s
        self._ledger = Ledger(epoch, kept_events, unix_offset_s, clock())
        self._leases = self._ledger.leases
        self._counters = self._ledger.counters
        self._ended: list[Lease] = []

    # -- the scheduler -------------------------------------------------------------------------

    def grant(self, **terms: Unpack[Terms]) -> Lease:
        """A new lease on blocks that the caller has pinned.

        Raises:
            ValueError: there is a lease of this id.
        """
        now = self._advance()
        if terms["id"] in self._leases:
            raise ValueError(f"there is a lease {terms['id']}")
        serial, token = self._counters.granted + 1, self._new_token()
        lease = granted(terms, serial=serial, created=now, ttl_s=self._ttl_s, token=token)
        self._ledger.add(lease)
        return lease

    def redeem_direct(self, lease_id: str, token: str) -> Lease:
        """Protect a lease for the direct turn that names it, until `finish` or its deadline.

        Raises:
            LeaseError: the token is not redeemed.
        """
        lease, now = self._redeem(lease_id, token, "direct")
        self._counters.directs += 1
        self._ledger.move(lease, "claimed", "claimed", now + self._claim_s)
        return lease

    def finish(self, lease_id: str, reason: EndReason) -> bool:
        """End a lease whose reader has read, or whose direct turn has its blocks.

        Returns:
            False if no lease is in such a use: it ended before, or its token was not redeemed.
        """
        self._advance()
        lease = self._leases.get(lease_id)
        if lease is None or not lease.used or lease.purpose != reason:
            return False
        self._ended.append(self._ledger.end(lease, reason))
        return True

    def reclaim(self, *, claimed: bool = False) -> Lease | None:
        """End the oldest granted lease, or if none is and `claimed`, the oldest claimed one.

        Returns:
            The lease, whose blocks the caller unpins; None if there is none.
        """
        self._advance()
        lease = self._ledger.oldest_granted()
        if lease is None and claimed:
            lease = self._ledger.oldest_claimed()
        return None if lease is None else self._ledger.end(lease, "reclaimed")

    def reset(self) -> None:
        """End all leases but those being read."""
        self._advance()
        idle = [lease for lease in self._leases.values() if lease.state != "reading"]
        self._ended += [self._ledger.end(lease, "reset") for lease in idle]

    def take_ended(self) -> list[Lease]:
        """What ended since the last call, but for what `reclaim` gave: the caller unpins it."""
        self._advance()
        ended, self._ended = self._ended, []
        return ended

    def sweep(self) -> None:
        """Do what is due: leases expire, claims lapse, readers are overdue."""
        self._advance()

    def due_in(self) -> float | None:
        """Seconds until `sweep` will change something; None if nothing is due ever."""
        first = self._ledger.first_due()
        return None if first is None else first.due - self._clock()

    def being_read(self) -> list[Lease]:
        """The leases that somebody reads."""
        self._advance()
        return [lease for lease in self._leases.values() if lease.state == "reading"]

    @property
    def granted_blocks(self) -> int:
        """Blocks in leases that `reclaim` would give, as of the last change."""
        return self._ledger.census.granted_blocks

    @property
    def blocks(self) -> int:
        """Blocks in all leases, as of the last change."""
        return self._ledger.census.blocks

    # -- the listener --------------------------------------------------------------------------

    def claim(self, lease_id: str, purpose: Purpose) -> Lease:
        """Take a granted lease for one use; the token that it had is void.

        Raises:
            LeaseError: unknown or taken.
        """
        now = self._advance()
        lease = self._leases.get(lease_id)
        if lease is None or lease.state != "granted":
            self._counters.claims_lost += 1
            raise LeaseError("unknown" if lease is None else "taken")
        self._counters.claims_won += 1
        lease.purpose = purpose
        lease.token = self._new_token()
        self._ledger.move(lease, "claimed", "claimed", now + self._claim_s)
        return lease

    def read(self, lease_id: str, token: str) -> Lease:
        """Redeem a token for the right to read, once; the deadline includes the grace.

        The lease has another token then, the reader's: with it the reader ends the lease, and
        whoever else has the first one cannot take the blocks from under the read.

        Raises:
            LeaseError: the token is not redeemed.
        """
        lease, now = self._redeem(lease_id, token, "read")
        lease.token = self._new_token()
        self._counters.reads += 1
        self._ledger.move(lease, "reading", "reading", now + self._read_s)
        return lease

    def release(self, lease_id: str, token: str | None = None) -> None:
        """End a lease that nobody wants.

        Args:
            lease_id: the lease.
            token: its token, or its reader's; None from a caller who needs none, but who may not
                end a lease that is being read.

        Raises:
            LeaseError: unknown, taken or token.
        """
        lease = self._known(lease_id, token)
        if token is None and lease.state == "reading":
            raise LeaseError("taken")
        self._ended.append(self._ledger.end(lease, "released"))

    def finish_read(self, lease_id: str, token: str) -> None:
        """End a lease whose reader has read, by the reader's word.

        Raises:
            LeaseError: unknown, token, or taken if it is not being read.
        """
        lease = self._known(lease_id, token)
        if lease.state != "reading":
            raise LeaseError("taken")
        self._ended.append(self._ledger.end(lease, "read"))

    @property
    def sequence(self) -> int:
        """Number of the last event, 0 before the first."""
        return self._ledger.log.sequence

    def events(self, since: int) -> list[Event]:
        """The events after `since`; raises Gone: list anew."""
        return self._ledger.log.since(since)

    def snapshot(self) -> list[bytes]:
        """The pieces of `listing`, for `ledger.joined`."""
        return self._ledger.snapshot(self._advance())

    def listing(self) -> bytes:
        """All leases as one JSON object, as of `sequence`."""
        return joined(self.snapshot())

    def counts(self) -> dict[State, int]:
        """How many leases are in each state."""
        self._advance()
        return dict(self._ledger.census.counts)

    @property
    def counters(self) -> Counters:
        """A copy, up to now."""
        self._advance()
        return self._counters.copy()

    def _advance(self) -> float:
        """Do what is due, and return the time."""
        now = self._clock()
        while (lease := self._ledger.first_due()) is not None and lease.due <= now:
            self._ledger.count_until(lease.due)
            self._pass(lease)
        self._ledger.count_until(now)
        return now

    def _pass(self, lease: Lease) -> None:
        """Do what is due for a lease."""
        if lease.state == "reading":
            self._ended.append(self._ledger.end(lease, "overdue"))
        elif lease.due == lease.expires:
            self._ended.append(self._ledger.end(lease, "expired"))
        else:
            self._counters.lapsed += 1
            lease.purpose, lease.used, lease.token = None, False, self._new_token()
            self._ledger.move(lease, "granted", "lapsed")

    def _known(self, lease_id: str, token: str | None) -> Lease:
        """The lease that is to be ended; a token must be its own."""
        self._advance()
        lease = self._leases.get(lease_id)
        if lease is None:
            raise LeaseError("unknown")
        if token is not None and not lease.has_token(token):
            raise LeaseError("token")
        return lease

    def _redeem(self, lease_id: str, token: str, purpose: Purpose) -> tuple[Lease, float]:
        now = self._advance()
        lease = self._leases.get(lease_id)
        if lease is None:
            raise self._refused("unknown")
        if lease.state == "reading":
            raise self._refused("taken")
        if not lease.has_token(token):
            raise self._refused("token")
        if lease.used or lease.purpose not in (None, purpose):
            raise self._refused("taken")
        lease.used = True
        lease.purpose = purpose
        return lease, now

    def _refused(self, code: Refusal) -> LeaseError:
        self._counters.refused += 1
        return LeaseError(code)
