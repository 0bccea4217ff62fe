"""What a D's lease listener says, checked: rows of its list, lines of its watch. Pure.

An engine is trusted more than a client and less than ourselves: a row of another release, or of an
engine that broke, must not end the watch of all the others.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import orjson

from disaggpair_connector.contract import LEASE_ID
from disaggpair_router.leases.place import Place, parse_place

State = Literal["granted", "claimed", "reading"]
EventType = Literal["granted", "claimed", "lapsed", "reading", "ended"]

_STATES: Final[tuple[State, ...]] = get_args(State)
_TYPES: Final[tuple[EventType, ...]] = get_args(EventType)


class Malformed(ValueError):
    """An answer that is none of a lease listener's; the message names the part."""


@dataclass(slots=True)
class Row:
    """A lease as D last told of it."""

    id: str
    place: Place | None
    """None when the lease was not asked for by a router of this kind."""
    state: State
    tokens: int
    """Tokens whose KV D holds."""
    created: float
    """Unix seconds of D's clock."""


@dataclass(frozen=True, slots=True)
class Listing:
    """All leases of one engine at one moment."""

    epoch: str
    """Names the engine's life: leases of another one are gone."""
    sequence: int
    """Number of the last event that the list contains."""
    rows: list[Row]


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a watch; without a row it only says how far the engine is."""

    sequence: int
    type: EventType | None = None
    reason: str = ""
    """Why the lease ended, as D says it."""
    row: Row | None = None


def parse_listing(body: bytes) -> Listing:
    """The list; Malformed when it is none."""
    value = _object(body)
    epoch, rows = value.get("epoch"), value.get("leases")
    if not isinstance(epoch, str) or not isinstance(rows, list):
        raise Malformed("epoch or leases is missing")
    return Listing(epoch, _count(value, "sequence"), [_row(row) for row in rows])


def parse_event(line: bytes) -> Event:
    """A line of the watch; Malformed when it is none."""
    value = _object(line)
    sequence = _count(value, "sequence")
    kind = value.get("type")
    if kind is None:
        return Event(sequence)
    if kind not in _TYPES:
        raise Malformed("type is none that is known")
    reason = value.get("reason")
    return Event(sequence, kind, reason if isinstance(reason, str) else "", _row(value["lease"]))


def parse_claimed(body: bytes) -> Mapping[str, Any]:
    """The parameters of a claimed lease, not checked as a handle; Malformed when there are none."""
    params = _object(body).get("kv_transfer_params")
    if not isinstance(params, dict):
        raise Malformed("kv_transfer_params is not an object")
    return params


def _row(value: object) -> Row:
    if not isinstance(value, dict):
        raise Malformed("a lease is not an object")
    name, state = value.get("id"), value.get("state")
    created: Any = value.get("created")
    # The id stands in a path when the lease is claimed.
    if not isinstance(name, str) or not LEASE_ID.fullmatch(name):
        raise Malformed("id is not a lease's")
    if state not in _STATES:
        raise Malformed("state is none that is known")
    if type(created) not in (int, float):
        raise Malformed("created is not a number")
    text = value.get("conversation")
    place = parse_place(text) if isinstance(text, str) else None
    return Row(name, place, state, _count(value, "tokens"), created)


def _count(value: Mapping[str, Any], key: str) -> int:
    found = value.get(key)
    if type(found) is not int or found < 0:
        raise Malformed(f"{key} is not a count")
    return found


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise Malformed("the answer is not JSON") from None
    if not isinstance(value, dict):
        raise Malformed("the answer is not an object")
    return value
