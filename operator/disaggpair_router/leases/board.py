"""The router's copy of the leases of all D, and who fits a turn. Pure.

A copy may be late by the time that an event travels. That costs a claim that D refuses, or a turn
that finds nothing; never a wrong use, since D alone decides who has a lease.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from disaggpair_router.leases.place import Place, Wanted
from disaggpair_router.leases.rows import Event, Row, State

Missing = Literal["first_turn", "scope", "claimed"]
"""Why no lease fits: none is known, only such of another prompt, or only such that others have."""


@dataclass(frozen=True, slots=True)
class Owner:
    """One life of one decode engine, or of one of its data-parallel ranks."""

    endpoint: str
    incarnation: str
    """A restart makes another one of the same endpoint."""
    rank: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """A lease that fits a turn."""

    owner: Owner
    row: Row


class Gap(Exception):
    """An event is missing: the list has to be read anew."""


@dataclass(slots=True)
class _Copy:
    """What is known of one engine."""

    epoch: str
    sequence: int
    rows: dict[str, Row] = field(default_factory=dict)


_Places = dict[bytes, dict[tuple[Owner, str], Row]]


class LeaseBoard:
    """Leases by engine, by conversation id and by history."""

    def __init__(self) -> None:
        self._copies: dict[Owner, _Copy] = {}
        self._by_id: _Places = {}
        self._by_history: _Places = {}
        self._counts: Counter[State] = Counter()

    def __len__(self) -> int:
        return sum(len(copy.rows) for copy in self._copies.values())

    @property
    def granted(self) -> int:
        """Leases that wait for a turn, those of other routers' kinds among them."""
        return self._counts["granted"]

    def count(self, state: State) -> int:
        """Leases in a state."""
        return self._counts[state]

    def __iter__(self) -> Iterator[Found]:
        for owner, copy in self._copies.items():
            for row in tuple(copy.rows.values()):
                yield Found(owner, row)

    # -- what D says ---------------------------------------------------------------------------

    def replace(self, owner: Owner, epoch: str, sequence: int) -> None:
        """Begin a new list as of an event's number; `add` brings its rows."""
        self.drop(owner)
        self._copies[owner] = _Copy(epoch, sequence)

    def add(self, owner: Owner, row: Row) -> None:
        """A row of the list, or a lease that D's answer told of before its event comes."""
        copy = self._copies.get(owner)
        if copy is not None and row.id not in copy.rows:
            self._put(owner, row)

    def apply(self, owner: Owner, event: Event) -> None:
        """Take an event; Gap when one before it is missing, or no list was taken yet."""
        copy = self._copies.get(owner)
        if copy is None:
            raise Gap
        if event.row is None:
            if event.sequence != copy.sequence:
                raise Gap
            return
        if event.sequence <= copy.sequence:
            return
        if event.sequence != copy.sequence + 1:
            raise Gap
        copy.sequence = event.sequence
        if event.type == "ended":
            self._remove(owner, event.row.id)
        else:
            self._put(owner, event.row)

    def drop(self, owner: Owner) -> int:
        """Forget an engine; how many leases went."""
        copy = self._copies.get(owner)
        if copy is None:
            return 0
        count = len(copy.rows)
        for lease in tuple(copy.rows):
            self._remove(owner, lease)
        del self._copies[owner]
        return count

    def drop_endpoint(self, endpoint: str, *, but: str | None = None) -> int:
        """Forget all lives of an engine except `but`; how many leases went."""
        gone = [
            owner
            for owner in self._copies
            if owner.endpoint == endpoint and owner.incarnation != but
        ]
        return sum(map(self.drop, gone))

    def since(self, owner: Owner) -> tuple[str, int] | None:
        """Epoch and number of the last event that was taken; None before a list."""
        copy = self._copies.get(owner)
        return (copy.epoch, copy.sequence) if copy else None

    # -- what a turn does ----------------------------------------------------------------------

    def find(self, wanted: Wanted) -> Found | Missing:
        """The lease that a turn can make most of."""
        known = list(self._candidates(wanted))
        if not known:
            return "first_turn"
        fitting = [one for one in known if _scope(one) == wanted.place.scope]
        if not fitting:
            return "scope"
        free = [one for one in fitting if one.row.state == "granted"]
        if not free:
            return "claimed"
        return max(free, key=lambda one: _worth(one, wanted))

    def of_conversation(self, place: Place) -> list[Found]:
        """The granted leases under the same conversation id."""
        return [
            Found(owner, row)
            for (owner, _), row in self._by_id.get(place.id, {}).items()
            if row.state == "granted"
        ]

    def state(self, found: Found) -> State | None:
        """How a lease is by now; None when it has ended."""
        copy = self._copies.get(found.owner)
        row = copy.rows.get(found.row.id) if copy else None
        return row.state if row else None

    def mark(self, found: Found, state: Literal["granted", "claimed"]) -> None:
        """What this router did to a lease, before D's event of it comes."""
        copy = self._copies.get(found.owner)
        if copy is not None and (row := copy.rows.get(found.row.id)) is not None:
            self._count(row, -1)
            row.state = state
            self._count(row, +1)

    def forget(self, found: Found) -> None:
        """A lease that D says it does not have."""
        self._remove(found.owner, found.row.id)

    def _candidates(self, wanted: Wanted) -> Iterable[Found]:
        places = self._by_id.get(wanted.place.id)
        if places is None and not wanted.has_id:
            # For clients that send no id: the longest history that is known decides.
            earlier = (self._by_history.get(digest) for digest in wanted.earlier)
            places = next(filter(None, earlier), None)
        for (owner, _), row in (places or {}).items():
            yield Found(owner, row)

    def _put(self, owner: Owner, row: Row) -> None:
        self._remove(owner, row.id)
        self._copies[owner].rows[row.id] = row
        self._count(row, +1)
        if row.place is not None:
            key = (owner, row.id)
            self._by_id.setdefault(row.place.id, {})[key] = row
            self._by_history.setdefault(row.place.history, {})[key] = row

    def _remove(self, owner: Owner, lease: str) -> None:
        copy = self._copies.get(owner)
        row = copy.rows.pop(lease, None) if copy else None
        if row is None:
            return
        self._count(row, -1)
        if row.place is not None:
            _leave(self._by_id, row.place.id, (owner, lease))
            _leave(self._by_history, row.place.history, (owner, lease))

    def _count(self, row: Row, by: int) -> None:
        self._counts[row.state] += by


def _scope(found: Found) -> bytes:
    return found.row.place.scope if found.row.place else b""


def _worth(found: Found, wanted: Wanted) -> tuple[bool, int, float]:
    """What continues this very history comes first, then the longest, then the newest.

    One that does not is tried, too: the engines read what is common, an edit far back in a long
    conversation leaves much of it.
    """
    place = found.row.place
    return place is not None and wanted.continues(place), found.row.tokens, found.row.created


def _leave(places: _Places, key: bytes, member: tuple[Owner, str]) -> None:
    members = places[key]
    del members[member]
    if not members:
        del places[key]
