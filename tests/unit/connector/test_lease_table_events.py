"""What is told of leases: the listing, the events, and that one gives the other."""

import itertools
import json
from typing import Any

import pytest

from disaggpair_connector.digest import Digests
from disaggpair_connector.events import event_line
from disaggpair_connector.table import Gone, LeaseTable


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def new_table(clock: Clock, kept_events: int = 100) -> LeaseTable:
    numbers = itertools.count(1)
    return LeaseTable(
        clock=clock,
        new_token=lambda: f"token-{next(numbers)}",
        epoch='e"1',
        ttl_s=100,
        claim_s=10,
        read_s=20,
        kept_events=kept_events,
        unix_offset_s=1_700_000_000.25,
    )


@pytest.fixture
def table(clock: Clock) -> LeaseTable:
    return new_table(clock)


def grant(table: LeaseTable, name: str = "a", conversation: str | None = "c") -> None:
    table.grant(
        id=name,
        conversation=conversation,
        tokens=0,
        block_ids=[[1, 2]],
        digests=Digests(0, b"", b""),
        handle={},
        divisible=True,
        pinned=None,
    )


def told(table: LeaseTable, since: int = 0) -> list[dict[str, Any]]:
    lines = [event_line(event) for event in table.events(since)]
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)
    return [json.loads(line) for line in lines]


def test_an_empty_table_is_listed(table: LeaseTable) -> None:
    assert json.loads(table.listing()) == {
        "epoch": 'e"1',
        "sequence": 0,
        "now": 1_700_001_000.25,
        "counts": {"granted": 0, "claimed": 0, "reading": 0},
        "leases": [],
    }


def test_a_lease_is_listed_in_unix_seconds_without_its_token(
    table: LeaseTable, clock: Clock
) -> None:
    grant(table, "a", conversation=None)
    clock.now += 1
    grant(table, "b", conversation='tür "\n')
    table.claim("b", "read")
    listing = json.loads(table.listing())
    assert listing["sequence"] == 3
    assert listing["counts"] == {"granted": 1, "claimed": 1, "reading": 0}
    assert listing["leases"] == [
        {
            "id": "a",
            "conversation": None,
            "state": "granted",
            "tokens": 0,
            "blocks": 2,
            "created": 1_700_001_000.25,
            "expires": 1_700_001_100.25,
            "deadline": None,
        },
        {
            "id": "b",
            "conversation": 'tür "\n',
            "state": "claimed",
            "tokens": 0,
            "blocks": 2,
            "created": 1_700_001_001.25,
            "expires": 1_700_001_101.25,
            "deadline": 1_700_001_011.25,
        },
    ]
    assert b"token-" not in table.listing()


def test_every_change_is_told_in_order(table: LeaseTable, clock: Clock) -> None:
    grant(table)
    table.claim("a", "read")
    clock.now += 10
    table.sweep()
    token = table.claim("a", "read").token
    table.read("a", token)
    table.finish("a", "read")
    events = told(table)
    assert [(event["sequence"], event["type"], event["reason"]) for event in events] == [
        (1, "granted", None),
        (2, "claimed", None),
        (3, "lapsed", None),
        (4, "claimed", None),
        (5, "reading", None),
        (6, "ended", "read"),
    ]
    assert [event["lease"]["state"] for event in events] == [
        "granted",
        "claimed",
        "granted",
        "claimed",
        "reading",
        "reading",
    ]
    assert told(table, 4) == events[4:]
    assert told(table, 6) == []


def test_a_direct_turn_that_redeems_its_claim_is_told_with_the_new_deadline(
    table: LeaseTable, clock: Clock
) -> None:
    grant(table)
    token = table.claim("a", "direct").token
    clock.now += 4
    table.redeem_direct("a", token)
    first, second = (event["lease"]["deadline"] for event in told(table, 1))
    assert second - first == 4


def test_a_listing_tells_what_the_clock_has_changed(table: LeaseTable, clock: Clock) -> None:
    grant(table)
    clock.now += 100
    listing = json.loads(table.listing())
    assert (listing["leases"], listing["sequence"]) == ([], 2)
    assert told(table, 1)[0]["reason"] == "expired"


def test_a_claim_that_nobody_looked_after_lapses_before_the_lease_expires(
    table: LeaseTable, clock: Clock
) -> None:
    grant(table)
    table.claim("a", "read")
    clock.now += 1000
    table.sweep()
    assert [event["type"] for event in told(table, 2)] == ["lapsed", "ended"]
    assert table.counters.block_seconds == 2 * 100


def test_events_that_are_not_kept_are_gone(clock: Clock) -> None:
    table = new_table(clock, kept_events=3)
    for name in "abcde":
        grant(table, name)
    assert [event["lease"]["id"] for event in told(table, 2)] == ["c", "d", "e"]
    with pytest.raises(Gone):
        table.events(1)


@pytest.mark.parametrize("since", [-1, 2])
def test_numbers_that_no_event_has_are_gone(table: LeaseTable, since: int) -> None:
    grant(table)
    with pytest.raises(Gone):
        table.events(since)
