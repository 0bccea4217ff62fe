"""Who gets a lease, who does not, and when it ends."""

import itertools
from collections.abc import Callable

import pytest

from disaggpair_connector.digest import digests_of
from disaggpair_connector.lease import EndReason, Lease, LeaseError, Purpose
from disaggpair_connector.table import LeaseTable

TTL_S, CLAIM_S, READ_S, GRACE_S = 100.0, 10.0, 20.0, 2.0


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def table(clock: Clock) -> LeaseTable:
    numbers = itertools.count(1)
    return LeaseTable(
        clock=clock,
        new_token=lambda: f"token-{next(numbers)}",
        epoch="e",
        ttl_s=TTL_S,
        claim_s=CLAIM_S,
        read_s=READ_S,
        grace_s=GRACE_S,
    )


def grant(table: LeaseTable, name: str = "a", blocks: int = 2) -> Lease:
    return table.grant(
        id=name,
        conversation="c",
        tokens=blocks * 16,
        block_ids=[range(blocks)],
        digests=digests_of(range(blocks * 16), blocks * 16, b""),
        handle={"remote_request_id": name},
        divisible=True,
        pinned=f"pin of {name}",
    )


def refusal(act: Callable[[], object]) -> str:
    with pytest.raises(LeaseError) as caught:
        act()
    assert str(caught.value) == caught.value.code
    return caught.value.code


def ended(table: LeaseTable) -> list[str]:
    return [lease.id for lease in table.take_ended()]


def reasons(table: LeaseTable) -> dict[EndReason, int]:
    return {reason: count for reason, count in table.counters.ended.items() if count}


def test_a_grant_keeps_its_terms_and_lasts_as_long_as_the_table_says(table: LeaseTable) -> None:
    lease = grant(table, "a", blocks=3)
    assert (lease.id, lease.conversation, lease.tokens, lease.blocks) == ("a", "c", 48, 3)
    assert [group.tolist() for group in lease.block_ids] == [[0, 1, 2]]
    assert (lease.pinned, lease.divisible) == ("pin of a", True)
    assert (lease.state, lease.created, lease.expires) == ("granted", 1000.0, 1000.0 + TTL_S)
    assert (lease.deadline, lease.ended) == (None, None)


def test_blocks_of_all_groups_count(table: LeaseTable) -> None:
    lease = table.grant(
        id="a",
        conversation=None,
        tokens=3,
        block_ids=([1, 2], [3]),
        digests=digests_of([1, 2, 3], 3, b""),
        handle={},
        divisible=False,
        pinned=None,
    )
    assert lease.blocks == 3
    assert table.granted_blocks == 3


def test_a_second_lease_of_one_id_is_an_error_while_the_first_lasts(table: LeaseTable) -> None:
    grant(table)
    with pytest.raises(ValueError, match="there is a lease a"):
        grant(table)
    table.release("a")
    assert grant(table).serial == 2


def test_a_lease_shows_no_token_when_it_is_printed(table: LeaseTable) -> None:
    lease = grant(table)
    assert lease.token not in f"{lease} {lease!r}"
    assert lease.token.encode() not in lease.text


# Claims.


def test_a_claim_is_exclusive_and_voids_the_first_token(table: LeaseTable, clock: Clock) -> None:
    first = grant(table).token
    lease = table.claim("a", "read")
    assert (lease.state, lease.deadline) == ("claimed", clock.now + CLAIM_S)
    assert refusal(lambda: table.claim("a", "read")) == "taken"
    assert refusal(lambda: table.read("a", first)) == "token"
    assert table.read("a", lease.token).state == "reading"
    assert (table.counters.claims_won, table.counters.claims_lost) == (1, 1)


def test_a_claim_of_no_lease_is_lost(table: LeaseTable) -> None:
    assert refusal(lambda: table.claim("a", "read")) == "unknown"
    assert table.counters.claims_lost == 1


@pytest.mark.parametrize(("claimed", "used"), [("read", "direct"), ("direct", "read")])
def test_a_claim_for_one_use_is_not_for_the_other(
    table: LeaseTable, claimed: Purpose, used: Purpose
) -> None:
    grant(table)
    token = table.claim("a", claimed).token
    redeem = table.read if used == "read" else table.redeem_direct
    assert refusal(lambda: redeem("a", token)) == "taken"


def test_a_claim_lapses_at_its_deadline_with_its_token(table: LeaseTable, clock: Clock) -> None:
    grant(table)
    token = table.claim("a", "direct").token
    clock.now += CLAIM_S
    assert refusal(lambda: table.read("a", token)) == "token"
    again = table.claim("a", "read")
    assert again.token != token
    assert table.counters.lapsed == 1
    assert not ended(table)


def test_a_claim_is_safe_until_its_deadline_though_the_lease_would_expire(
    table: LeaseTable, clock: Clock
) -> None:
    grant(table)
    clock.now += TTL_S - 1
    lease = table.claim("a", "read")
    assert lease.expires == lease.deadline == clock.now + CLAIM_S
    clock.now += CLAIM_S - 0.5
    assert not ended(table)
    clock.now += 0.5
    assert ended(table) == ["a"]
    assert reasons(table) == {"expired": 1}


# Reads.


def test_a_token_reads_once(table: LeaseTable, clock: Clock) -> None:
    token = grant(table).token
    lease = table.read("a", token)
    assert (lease.state, lease.deadline) == ("reading", clock.now + READ_S + GRACE_S)
    assert refusal(lambda: table.read("a", token)) == "taken"
    assert refusal(lambda: table.redeem_direct("a", token)) == "taken"
    assert refusal(lambda: table.claim("a", "read")) == "taken"
    assert table.finish("a", "read")
    assert refusal(lambda: table.read("a", token)) == "unknown"
    assert (table.counters.reads, table.counters.refused) == (1, 3)


@pytest.mark.parametrize("token", ["", "token-2", "token-1 ", "tökén", "\ud800"])
def test_another_token_reads_nothing(table: LeaseTable, token: str) -> None:
    grant(table)
    assert refusal(lambda: table.read("a", token)) == "token"
    assert refusal(lambda: table.release("a", token)) == "token"


def test_a_token_that_has_read_neither_reads_again_nor_ends_the_read(table: LeaseTable) -> None:
    token = grant(table).token
    reader = table.read("a", token).token
    assert refusal(lambda: table.read("a", token)) == "taken"
    assert refusal(lambda: table.release("a", token)) == "token"
    assert refusal(lambda: table.finish_read("a", token)) == "token"
    assert table.counts()["reading"] == 1
    assert refusal(lambda: table.read("a", reader)) == "taken"


def test_a_read_ends_when_its_reader_says_that_it_has_read(table: LeaseTable) -> None:
    reader = table.read("a", grant(table).token).token
    table.finish_read("a", reader)
    assert refusal(lambda: table.finish_read("a", reader)) == "unknown"
    assert not table.finish("a", "read")
    assert [(lease.pinned, lease.ended) for lease in table.take_ended()] == [("pin of a", "read")]
    assert ended(table) == []


def test_a_read_ends_when_the_scheduler_sees_that_it_was_read(table: LeaseTable) -> None:
    reader = table.read("a", grant(table).token).token
    assert table.finish("a", "read")
    assert not table.finish("a", "read")
    assert refusal(lambda: table.finish_read("a", reader)) == "unknown"
    assert [(lease.pinned, lease.ended) for lease in table.take_ended()] == [("pin of a", "read")]


def test_who_does_not_read_does_not_finish_by_token(table: LeaseTable) -> None:
    assert refusal(lambda: table.finish_read("a", "token")) == "unknown"
    token = grant(table).token
    assert refusal(lambda: table.finish_read("a", token)) == "taken"
    claimed = table.claim("a", "direct").token
    table.redeem_direct("a", claimed)
    assert refusal(lambda: table.finish_read("a", claimed)) == "taken"
    assert not ended(table)


def test_a_reader_who_takes_too_long_loses_the_lease(table: LeaseTable, clock: Clock) -> None:
    table.read("a", grant(table).token)
    clock.now += READ_S + GRACE_S
    assert not table.finish("a", "read")
    assert [lease.ended for lease in table.take_ended()] == ["overdue"]
    assert reasons(table) == {"overdue": 1}


def test_a_read_is_safe_though_the_lease_would_expire(table: LeaseTable, clock: Clock) -> None:
    token = grant(table).token
    clock.now += TTL_S - 1
    table.read("a", token)
    clock.now += READ_S
    assert table.finish("a", "read")


def test_nothing_finishes_what_was_not_begun(table: LeaseTable) -> None:
    assert not table.finish("a", "read")
    grant(table)
    assert not table.finish("a", "read")
    table.claim("a", "read")
    assert not table.finish("a", "read")
    assert not table.finish("a", "direct")


# Direct turns.


def test_a_direct_turn_keeps_the_lease_until_it_is_finished(
    table: LeaseTable, clock: Clock
) -> None:
    grant(table)
    token = table.claim("a", "direct").token
    clock.now += CLAIM_S - 1
    lease = table.redeem_direct("a", token)
    assert (lease.state, lease.deadline) == ("claimed", clock.now + CLAIM_S)
    assert table.reclaim() is None
    assert refusal(lambda: table.redeem_direct("a", token)) == "taken"
    assert not table.finish("a", "read")
    assert table.finish("a", "direct")
    assert ended(table) == ["a"]
    assert (table.counters.directs, reasons(table)) == (1, {"direct": 1})


def test_a_direct_turn_may_come_without_a_claim(table: LeaseTable) -> None:
    token = grant(table).token
    assert table.redeem_direct("a", token).state == "claimed"
    assert refusal(lambda: table.read("a", token)) == "taken"


def test_a_direct_turn_that_never_gets_its_blocks_gives_the_lease_back(
    table: LeaseTable, clock: Clock
) -> None:
    token = grant(table).token
    table.redeem_direct("a", token)
    clock.now += CLAIM_S
    assert not table.finish("a", "direct")
    assert refusal(lambda: table.redeem_direct("a", token)) == "token"
    assert table.claim("a", "read").state == "claimed"


# Ends.


def test_a_release_by_key_ends_all_but_a_read(table: LeaseTable) -> None:
    assert refusal(lambda: table.release("a")) == "unknown"
    for name in "abc":
        grant(table, name)
    table.claim("b", "read")
    table.read("c", "token-3")
    table.release("a")
    table.release("b")
    assert refusal(lambda: table.release("c")) == "taken"
    assert ended(table) == ["a", "b"]
    assert reasons(table) == {"released": 2}


def test_a_reader_gives_back_what_it_does_not_read(table: LeaseTable) -> None:
    reader = table.read("a", grant(table).token).token
    table.release("a", reader)
    assert refusal(lambda: table.release("a", reader)) == "unknown"
    assert [lease.ended for lease in table.take_ended()] == ["released"]


def test_the_token_of_a_grant_does_not_release_what_is_claimed(table: LeaseTable) -> None:
    token = grant(table).token
    claimed = table.claim("a", "read").token
    assert refusal(lambda: table.release("a", token)) == "token"
    table.release("a", claimed)


def test_leases_expire_at_their_time(table: LeaseTable, clock: Clock) -> None:
    grant(table, "a")
    clock.now += 1
    grant(table, "b")
    clock.now = 1000.0 + TTL_S
    assert refusal(lambda: table.claim("a", "read")) == "unknown"
    assert ended(table) == ["a"]
    clock.now += 1
    table.sweep()
    assert ended(table) == ["b"]


def test_the_oldest_granted_lease_is_reclaimed_first_and_handed_out_once(
    table: LeaseTable, clock: Clock
) -> None:
    for name in "abcd":
        grant(table, name)
    table.claim("a", "read")
    table.read("b", "token-2")
    assert (found := table.reclaim()) is not None
    assert (found.id, found.pinned, found.ended) == ("c", "pin of c", "reclaimed")
    assert refusal(lambda: table.claim("c", "read")) == "unknown"
    assert ended(table) == []
    clock.now += CLAIM_S  # the claim of a lapses
    assert [lease.id for lease in iter(table.reclaim, None)] == ["a", "d"]
    assert reasons(table) == {"reclaimed": 3}
    assert ended(table) == []


def test_claimed_leases_are_reclaimed_last_and_only_if_asked_for(table: LeaseTable) -> None:
    for name in "abcd":
        grant(table, name)
    table.claim("b", "read")
    table.claim("a", "direct")
    table.read("c", "token-3")
    assert table.blocks == sum(lease.blocks for lease in table._leases.values())
    found = iter(lambda: table.reclaim(claimed=True), None)
    assert [(lease.id, lease.state) for lease in found] == [
        ("d", "granted"),
        ("a", "claimed"),
        ("b", "claimed"),
    ]
    assert reasons(table) == {"reclaimed": 3}
    assert table.finish("c", "read")


def test_a_reset_ends_all_but_what_is_being_read(table: LeaseTable) -> None:
    for name in "abc":
        grant(table, name)
    table.claim("a", "direct")
    table.read("b", "token-2")
    table.reset()
    assert ended(table) == ["a", "c"]
    assert table.counts() == {"granted": 0, "claimed": 0, "reading": 1}
    assert table.finish("b", "read")


# Numbers.


def test_states_and_granted_blocks_are_counted(table: LeaseTable, clock: Clock) -> None:
    for name, blocks in (("a", 2), ("b", 3), ("c", 5)):
        grant(table, name, blocks)
    table.claim("b", "read")
    table.read("c", "token-3")
    assert table.counts() == {"granted": 1, "claimed": 1, "reading": 1}
    assert table.granted_blocks == 2
    clock.now += CLAIM_S
    assert table.counts() == {"granted": 2, "claimed": 0, "reading": 1}
    assert table.granted_blocks == 5


def test_block_seconds_grow_while_blocks_are_held(table: LeaseTable, clock: Clock) -> None:
    grant(table, "a", 2)
    clock.now += 5
    grant(table, "b", 3)
    clock.now += 1
    table.release("a")
    clock.now += 1
    assert table.counters.block_seconds == 2 * 5 + 5 * 1 + 3 * 1


def test_counters_that_were_taken_do_not_change(table: LeaseTable) -> None:
    before = table.counters
    grant(table)
    table.release("a")
    assert (before.granted, before.ended["released"]) == (0, 0)
    assert (table.counters.granted, table.counters.ended["released"]) == (1, 1)


def test_work_is_due_when_the_first_time_has_passed(table: LeaseTable, clock: Clock) -> None:
    assert table.due_in() is None
    grant(table)
    assert table.due_in() == TTL_S
    table.claim("a", "read")
    assert table.due_in() == CLAIM_S
    clock.now += CLAIM_S
    assert table.due_in() == 0
    table.sweep()
    assert table.due_in() == TTL_S - CLAIM_S
