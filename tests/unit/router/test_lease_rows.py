"""What is taken from a lease listener, and what is not."""

from typing import Any

import orjson
import pytest

from disaggpair_router.leases.place import Place
from disaggpair_router.leases.rows import (
    Event,
    Malformed,
    Row,
    parse_claimed,
    parse_event,
    parse_listing,
)

PLACE = Place(b"i" * 16, b"s" * 8, b"h" * 16, 7)
LEASE = {
    "id": "a1",
    "conversation": PLACE.text(),
    "state": "granted",
    "tokens": 40,
    "blocks": 3,
    "created": 1.5,
    "expires": 9.0,
    "deadline": None,
}
ROW = Row("a1", PLACE, "granted", 40, 1.5)


def test_a_list_has_its_epoch_its_place_in_the_events_and_its_leases() -> None:
    body = {"epoch": "e", "sequence": 9, "now": 2.0, "leases": [LEASE], "counts": {}}
    listing = parse_listing(orjson.dumps(body))
    assert (listing.epoch, listing.sequence, listing.rows) == ("e", 9, [ROW])


def test_a_lease_of_somebody_else_has_no_place() -> None:
    for text in (None, "theirs"):
        body = {"epoch": "e", "sequence": 0, "leases": [{**LEASE, "conversation": text}]}
        assert parse_listing(orjson.dumps(body)).rows[0].place is None


def test_a_line_of_a_watch_is_an_event_or_says_how_far_the_engine_is() -> None:
    line = {"sequence": 3, "type": "ended", "reason": "read", "lease": LEASE}
    assert parse_event(orjson.dumps(line)) == Event(3, "ended", "read", ROW)
    granted = {"sequence": 3, "type": "granted", "reason": None, "lease": LEASE}
    assert parse_event(orjson.dumps(granted)) == Event(3, "granted", "", ROW)
    assert parse_event(b'{"sequence":4}\n') == Event(4)


def test_a_claimed_lease_comes_with_parameters() -> None:
    assert parse_claimed(b'{"lease":{},"kv_transfer_params":{"a":1}}') == {"a": 1}
    with pytest.raises(Malformed, match="kv_transfer_params"):
        parse_claimed(b'{"kv_transfer_params":[]}')


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"id": "../x"}, "id"),
        ({"id": 1}, "id"),
        ({"state": "ended"}, "state"),
        ({"tokens": -1}, "tokens"),
        ({"tokens": True}, "tokens"),
        ({"created": None}, "created"),
    ],
)
def test_a_lease_that_is_none_is_named_by_its_part(change: dict[str, Any], part: str) -> None:
    body = {"epoch": "e", "sequence": 0, "leases": [{**LEASE, **change}]}
    with pytest.raises(Malformed, match=part):
        parse_listing(orjson.dumps(body))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"sequence":1,"leases":[]}',
        b'{"epoch":"e","sequence":1}',
        b'{"epoch":"e","leases":[]}',
        b'{"epoch":"e","sequence":1,"leases":[3]}',
    ],
)
def test_what_is_no_list_is_refused(body: bytes) -> None:
    with pytest.raises(Malformed):
        parse_listing(body)


@pytest.mark.parametrize(
    "line",
    [b"", b"{}", b'{"sequence":1,"type":"new"}', b'{"sequence":1,"type":"granted","lease":null}'],
)
def test_what_is_no_event_is_refused(line: bytes) -> None:
    with pytest.raises(Malformed):
        parse_event(line)
