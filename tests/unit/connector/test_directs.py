"""Turns for D alone and the leases that keep their history."""

from array import array

from disaggpair_connector.book import LeaseBook
from disaggpair_connector.digest import digests_of
from disaggpair_connector.directs import DirectTurns
from disaggpair_connector.handle import Direct
from disaggpair_connector.lease import Lease
from disaggpair_connector.tally import Tally, key


def book() -> LeaseBook:
    return LeaseBook(epoch="e", ttl_s=100, claim_s=10, read_s=10)


def grant(leases: LeaseBook) -> Lease:
    return leases.grant(
        id="a",
        conversation=None,
        tokens=3,
        block_ids=[array("I", [1])],
        digests=digests_of([1, 2, 3], 3, b""),
        handle={},
        divisible=True,
        pinned=None,
    )


def test_a_claimed_history_is_kept_until_the_turn_has_its_blocks() -> None:
    leases = book()
    grant(leases)
    claimed = leases.claim("a", "direct")
    turns = DirectTurns(leases, Tally())
    turns.begin("request", Direct("a", claimed.token))
    assert leases.reclaim() is None
    turns.end("request")
    assert [lease.ended for lease in leases.take_ended()] == ["direct"]
    turns.end("request")
    assert leases.take_ended() == []


def test_a_history_that_cannot_be_kept_is_counted_and_the_turn_goes_on() -> None:
    leases, tally = book(), Tally()
    grant(leases)
    turns = DirectTurns(leases, tally)
    turns.begin("request", Direct("a", "another"))
    turns.end("request")
    assert tally.take() == {key("refused_reads", "token"): [1]}
    assert leases.counts()["granted"] == 1


def test_a_turn_without_a_lease_keeps_nothing() -> None:
    leases, tally = book(), Tally()
    turns = DirectTurns(leases, tally)
    turns.begin("request", Direct(None, None))
    turns.end("request")
    assert tally.take() == {}
