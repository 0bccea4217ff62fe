"""The table stays within its bounds, and no handle leaves it twice."""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from disaggpair_bed.fakes.upstream import decode_handle
from disaggpair_router.answer import Answer
from disaggpair_router.history import ChatHistory
from disaggpair_router.kv import checked_handle
from disaggpair_router.session import Claim, Conversations, Entry, Holder

ASKED = [{"role": "user", "content": "is it?"}]
NEXT = ChatHistory([*ASKED, {"role": "assistant", "content": "yes"}, *ASKED])
OTHER = ChatHistory([*ASKED, {"role": "assistant", "content": "no"}, *ASKED])
BASE = Entry(
    key=b"",
    scope=b"s",
    mark=ChatHistory(ASKED).mark_after(Answer("yes")),
    handle=None,
    holder=Holder("d-0", ""),
    model="m",
    deadline=0.0,
)
KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])
LIFE_S = 10.0
MAX_ENTRIES, MAX_BYTES = 3, 4_000


class Table(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = Conversations(max_entries=MAX_ENTRIES, max_bytes=MAX_BYTES, memory_s=LIFE_S)
        self.now = 0.0
        self.number = 0
        self.used: set[str] = set()
        self.unsent: list[Claim] = []
        self.deadlines: dict[str, float] = {}

    def leaves(self, entries: list[Entry]) -> None:
        """Handles that may be released: none of them may have been used or released before."""
        for entry in entries:
            assert entry.handle is not None
            assert entry.handle.engine not in self.used
            self.used.add(entry.handle.engine)

    @rule(key=KEYS, engine=st.integers(0, 1))
    def store(self, key: bytes, engine: int) -> None:
        self.number += 1
        name = f"e{self.number}"
        handle = checked_handle(decode_handle(remote_engine_id=name))
        deadline = self.now + LIFE_S
        self.deadlines[name] = deadline
        holder = Holder(f"d-{engine}", "")
        entry = replace(BASE, key=key, handle=handle, holder=holder, deadline=deadline)
        self.leaves(self.table.store(entry))

    @rule(key=KEYS, sent=st.booleans())
    def claim(self, key: bytes, sent: bool) -> None:
        found = self.table.claim(key, b"s", NEXT, self.now)
        if not isinstance(found, Claim):
            assert found.unusable is None
            return
        assert self.now < self.deadlines[found.handle.engine]
        if sent:
            self.leaves([found.entry])
        else:
            self.unsent.append(found)

    @rule(key=KEYS)
    def claim_with_another_history(self, key: bytes) -> None:
        found = self.table.claim(key, b"s", OTHER, self.now)
        assert not isinstance(found, Claim)
        self.leaves([found.unusable] if found.unusable else [])

    @rule()
    def restore(self) -> None:
        if self.unsent:
            self.leaves(self.table.restore(self.unsent.pop()))

    @rule(engine=st.integers(0, 1))
    def lose_engine(self, engine: int) -> None:
        self.table.forget_holder(f"d-{engine}")

    @rule(seconds=st.floats(0.1, 8.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.table.expire(self.now)

    @invariant()
    def is_within_its_bounds(self) -> None:
        entries = list(self.table)
        assert len(entries) == len(self.table) <= MAX_ENTRIES
        assert sum(entry.size_bytes for entry in entries) == self.table.size_bytes <= MAX_BYTES
        assert sum(entry.handle is not None for entry in entries) == self.table.handles

    @invariant()
    def finds_only_handles_it_holds(self) -> None:
        found = self.table.continued_by(b"", NEXT.digests())
        held = {entry.key for entry in self.table if entry.handle}
        assert found is None or found in held

    @invariant()
    def holds_no_handle_that_was_used(self) -> None:
        held = {entry.handle.engine for entry in self.table if entry.handle}
        assert not held & self.used


TestTable = Table.TestCase
TestTable.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
