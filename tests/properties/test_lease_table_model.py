"""Leases over a pool of counted blocks, beside a model that looks at everything at each step."""

import itertools
import json
from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from disaggpair_bed.fakes.leases import LeaseModel, Pool
from disaggpair_connector.digest import Digests
from disaggpair_connector.events import event_line
from disaggpair_connector.lease import EndReason, Lease, LeaseError, Purpose
from disaggpair_connector.table import Gone, LeaseTable

TTL_S, CLAIM_S, READ_S, GRACE_S = 12.0, 4.0, 5.0, 1.0
STEPS_S = [0.5, 1.0, CLAIM_S, READ_S, READ_S + GRACE_S, TTL_S / 2, TTL_S]
KEPT_EVENTS = 24
POOL_BLOCKS = 24
WALL_S = 1_700_000_000.0

Position = tuple[int, dict[str, Any]]


def refusal(act: Callable[[], object]) -> str | None:
    try:
        act()
    except LeaseError as error:
        return error.code
    return None


class LeasesAndPool(RuleBasedStateMachine):
    names = Bundle("names")
    positions = Bundle("positions")

    def __init__(self) -> None:
        super().__init__()
        numbers = itertools.count(1)
        self.pool = Pool(POOL_BLOCKS)
        self.model = model = LeaseModel(TTL_S, CLAIM_S, READ_S + GRACE_S)
        self.table = LeaseTable(
            clock=lambda: model.now,
            new_token=lambda: f"t{next(numbers)}",
            epoch="e",
            ttl_s=TTL_S,
            claim_s=CLAIM_S,
            read_s=READ_S,
            grace_s=GRACE_S,
            kept_events=KEPT_EVENTS,
            unix_offset_s=WALL_S,
        )

    # The scheduler.

    @rule(target=names, fresh=st.integers(1, 9), shared=st.integers(0, 4), data=st.data())
    def grant(self, fresh: int, shared: int, data: st.DataObject) -> Any:
        """A request ends that began, maybe, with the first blocks of another's history."""
        history: list[int] = []
        if shared and self.model.records:
            other = data.draw(st.sampled_from(sorted(self.model.records)))
            history = self.model.records[other].blocks[:shared]
        self.pool.pin(history)
        written = self.allocate(fresh)
        if written is None:
            self.pool.unpin(history)
            return multiple()
        self.pool.pin(written)
        blocks = history + written
        name = f"l{self.pool.writes}"
        lease = self.table.grant(
            id=name,
            conversation=f"c-{name}",
            tokens=0,
            block_ids=[blocks],
            digests=Digests(0, b"", b""),
            handle={},
            divisible=True,
            pinned=blocks,
        )
        self.model.add(lease, blocks, [self.pool.writer[block] for block in blocks])
        return name

    @rule(fresh=st.integers(1, POOL_BLOCKS))
    def run_a_request_without_a_lease(self, fresh: int) -> None:
        self.allocate(fresh)

    def allocate(self, count: int) -> list[int] | None:
        """Write to free blocks, and give leases up for them, oldest first; None without enough."""
        self.take_ended()
        while len(self.pool.free()) < count:
            oldest, lease = self.model.oldest_granted(), self.table.reclaim()
            assert (lease and lease.id) == (oldest and oldest.id)
            if lease is None or oldest is None:
                return None
            self.model.close(oldest, "reclaimed")
            assert lease.ended == "reclaimed"
            self.unpin(lease)
        written = self.pool.free()[:count]
        self.pool.write(written)
        return written

    @rule()
    def take_ended(self) -> None:
        self.model.settle()
        taken = self.table.take_ended()
        assert {lease.id: lease.pinned for lease in taken} == self.model.owed
        assert len(taken) == len(self.model.owed)
        for lease in taken:
            assert lease.ended == self.model.ended[lease.id]
            self.unpin(lease)
        self.model.owed.clear()

    def unpin(self, lease: Lease) -> None:
        assert isinstance(lease.pinned, list)
        self.pool.unpin(lease.pinned)

    @rule(name=names, token=st.sampled_from(["own", "forged"]))
    def redeem_direct(self, name: str, token: str) -> None:
        self.redeem(name, token, "direct")

    @rule(name=names, reason=st.sampled_from(["read", "direct"]))
    def finish(self, name: str, reason: EndReason) -> None:
        wanted = self.model.is_in_use(name, reason)
        assert self.table.finish(name, reason) == wanted
        if wanted:
            self.model.close(self.model.records[name], reason)

    @rule()
    def reset(self) -> None:
        self.table.reset()
        for record in list(self.model.records.values()):
            if record.state != "reading":
                self.model.close(record, "reset")

    # The router and P.

    @rule(name=names, purpose=st.sampled_from(["read", "direct"]))
    def claim(self, name: str, purpose: Purpose) -> None:
        wanted = self.model.claim_refusal(name)
        if wanted is None:
            self.model.claim(name, purpose, self.table.claim(name, purpose).token)
        else:
            assert refusal(lambda: self.table.claim(name, purpose)) == wanted

    @rule(name=names, token=st.sampled_from(["own", "forged"]))
    def read(self, name: str, token: str) -> None:
        self.redeem(name, token, "read")

    def redeem(self, name: str, token: str, purpose: Purpose) -> None:
        given = self.model.token_of(name) if token == "own" else token
        wanted = self.model.redeem_refusal(name, given, purpose)
        act = self.table.read if purpose == "read" else self.table.redeem_direct
        if wanted is None:
            self.model.redeem(name, purpose, act(name, given).token)
        else:
            assert refusal(lambda: act(name, given)) == wanted

    @rule(name=names, token=st.sampled_from(["own", "forged"]))
    def finish_read(self, name: str, token: str) -> None:
        given = self.model.token_of(name) if token == "own" else token
        wanted = self.model.finish_read_refusal(name, given)
        assert refusal(lambda: self.table.finish_read(name, given)) == wanted
        if wanted is None:
            self.model.close(self.model.records[name], "read")

    @precondition(lambda self: self.model.spent)
    @rule(data=st.data())
    def use_a_token_of_the_past(self, data: st.DataObject) -> None:
        """It neither begins a use nor ends one, whoever has the lease now."""
        name, token = data.draw(st.sampled_from(self.model.spent))
        wanted = self.model.redeem_refusal(name, token, "read")
        assert wanted is not None
        assert refusal(lambda: self.table.read(name, token)) == wanted
        assert refusal(lambda: self.table.redeem_direct(name, token)) == wanted
        gone = self.model.release_refusal(name, token)
        assert gone in ("unknown", "token")
        assert refusal(lambda: self.table.release(name, token)) == gone
        assert refusal(lambda: self.table.finish_read(name, token)) == gone

    @rule(name=names, token=st.sampled_from(["key", "own", "forged"]))
    def release(self, name: str, token: str) -> None:
        given = {"key": None, "own": self.model.token_of(name), "forged": "forged"}[token]
        wanted = self.model.release_refusal(name, given)
        assert refusal(lambda: self.table.release(name, given)) == wanted
        if wanted is None:
            self.model.close(self.model.records[name], "released")

    @rule(seconds=st.sampled_from(STEPS_S))
    def wait(self, seconds: float) -> None:
        """Nobody calls the table meanwhile; what the clock does is done by whatever comes next."""
        self.model.wait(seconds)
        self.model.settle()

    # Whoever watches.

    @initialize(target=positions)
    def watch_from_the_beginning(self) -> Position:
        return 0, {}

    @rule(target=positions)
    def list_leases(self) -> Position:
        listing = json.loads(self.table.listing())
        return listing["sequence"], {lease["id"]: lease for lease in listing["leases"]}

    @rule(position=consumes(positions))
    def replay(self, position: Position) -> None:
        """The events after any listing give the listing of now, or are said to be gone."""
        sequence, leases = position
        listing = json.loads(self.table.listing())
        try:
            events = [json.loads(event_line(event)) for event in self.table.events(sequence)]
        except Gone:
            assert listing["sequence"] - sequence > KEPT_EVENTS
            return
        numbers = [event["sequence"] for event in events]
        assert numbers == list(range(sequence + 1, listing["sequence"] + 1))
        for event in events:
            assert (event["type"] == "ended") == (event["reason"] is not None)
            if event["type"] == "ended":
                del leases[event["lease"]["id"]]
            else:
                leases[event["lease"]["id"]] = event["lease"]
        assert list(leases.values()) == listing["leases"]

    @rule()
    def compare_the_listing(self) -> None:
        listing = json.loads(self.table.listing())
        assert listing["now"] == self.model.now + WALL_S
        records = self.model.records.values()
        assert listing["leases"] == [record.shown(WALL_S) for record in records]
        assert listing["counts"] == self.table.counts()

    @rule()
    def compare_the_numbers(self) -> None:
        records = self.model.records.values()
        states = [record.state for record in records]
        assert self.table.counts() == {
            state: states.count(state) for state in ("granted", "claimed", "reading")
        }
        assert self.table.granted_blocks == sum(
            len(record.blocks) for record in records if record.state == "granted"
        )
        reasons = list(self.model.ended.values())
        counters = self.table.counters
        assert counters.ended == {reason: reasons.count(reason) for reason in counters.ended}
        assert counters.granted == len(records) + len(reasons)
        assert counters.block_seconds == self.model.block_seconds

    # What holds at all times. Nothing here calls the table, so that time passes unseen, too.

    @invariant()
    def blocks_of_leases_hold_what_they_held(self) -> None:
        for record in self.model.records.values():
            assert all(self.pool.references[block] for block in record.blocks)
            assert [self.pool.writer[block] for block in record.blocks] == record.contents

    @invariant()
    def no_block_is_lost_or_given_back_twice(self) -> None:
        lists = [record.blocks for record in self.model.records.values()]
        wanted = [0] * POOL_BLOCKS
        for block in itertools.chain(*lists, *self.model.owed.values()):
            wanted[block] += 1
        assert self.pool.references == wanted

    def teardown(self) -> None:
        """All leases run out, and every block is free again."""
        for _ in range(2):
            self.model.wait(TTL_S + CLAIM_S + READ_S)
            self.take_ended()
        assert self.pool.free() == list(range(POOL_BLOCKS))


TestLeasesAndPool = LeasesAndPool.TestCase
TestLeasesAndPool.settings = settings(max_examples=150, stateful_step_count=60)
