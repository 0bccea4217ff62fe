"""Any history of lists, events and uses leaves the board equal to a plain model of the engines."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from disaggpair_router.leases.board import Found, Gap, LeaseBoard, Owner
from disaggpair_router.leases.place import Place, Wanted
from disaggpair_router.leases.rows import Event, Row

OWNERS = [Owner("d1", "a"), Owner("d1", "a", 1), Owner("d2", "b")]
owners = st.sampled_from(OWNERS)
names = st.sampled_from(["l1", "l2", "l3", "l4"])
ids = st.sampled_from([b"i" * 16, b"j" * 16])
scopes = st.sampled_from([b"s" * 8, b"t" * 8])
histories = st.sampled_from([bytes([number]) * 16 for number in range(4)])
places = st.builds(Place, ids, scopes, histories, st.integers(0, 5)) | st.none()
states = st.sampled_from(["granted", "claimed", "reading"])
rows = st.builds(Row, names, places, states, st.integers(0, 100), st.floats(0, 100))


def copied(row: Row, **change: Any) -> Row:
    values = {name: getattr(row, name) for name in ("id", "place", "state", "tokens", "created")}
    return Row(**{**values, **change})


def wanted(place: Place, earlier: list[bytes], *, has_id: bool) -> Wanted:
    return Wanted(place, has_id, earlier, lambda other: other.history == b"\0" * 16)


class BoardModel(RuleBasedStateMachine):
    """`known` is what each engine would say; the board is told of it in pieces."""

    def __init__(self) -> None:
        super().__init__()
        self.board = LeaseBoard()
        self.known: dict[Owner, dict[str, Row]] = {}
        self.sequence: dict[Owner, int] = {}

    @rule(
        owner=owners,
        listed=st.lists(rows, unique_by=lambda row: row.id),
        sequence=st.integers(0, 5),
    )
    def list_anew(self, owner: Owner, listed: list[Row], sequence: int) -> None:
        self.board.replace(owner, "e", sequence)
        for row in listed:
            self.board.add(owner, copied(row))
        self.known[owner] = {row.id: copied(row) for row in listed}
        self.sequence[owner] = sequence

    @rule(owner=owners, row=rows, ends=st.booleans())
    def next_event(self, owner: Owner, row: Row, ends: bool) -> None:
        if owner not in self.known:
            return
        self.sequence[owner] += 1
        kind = "ended" if ends else "granted"
        self.board.apply(owner, Event(self.sequence[owner], kind, "", copied(row)))  # type: ignore[arg-type]  # drawn from the literal's words
        if ends:
            self.known[owner].pop(row.id, None)
        else:
            self.known[owner][row.id] = copied(row)

    @rule(owner=owners, row=rows, back=st.integers(0, 3))
    def an_event_twice_changes_nothing(self, owner: Owner, row: Row, back: int) -> None:
        if owner in self.known:
            self.board.apply(owner, Event(self.sequence[owner] - back, "ended", "", row))

    @rule(owner=owners, row=rows | st.none(), skipped=st.integers(2, 4))
    def a_missing_event_is_noticed(self, owner: Owner, row: Row | None, skipped: int) -> None:
        sequence = self.sequence.get(owner, 0) + skipped
        try:
            self.board.apply(owner, Event(sequence, "granted" if row else None, "", row))
        except Gap:
            return
        raise AssertionError("the gap went unseen")

    @rule(owner=owners)
    def a_bookmark_changes_nothing(self, owner: Owner) -> None:
        if owner in self.known:
            self.board.apply(owner, Event(self.sequence[owner]))

    @rule(owner=owners)
    def an_engine_goes(self, owner: Owner) -> None:
        assert self.board.drop(owner) == len(self.known.pop(owner, {}))
        self.sequence.pop(owner, None)

    @precondition(lambda self: self.known)
    @rule(data=st.data(), state=st.sampled_from(["granted", "claimed"]))
    def a_turn_marks_or_forgets(self, data: st.DataObject, state: Any) -> None:
        found = list(self.board)
        if not found:
            return
        one = data.draw(st.sampled_from(found))
        if data.draw(st.booleans()):
            self.board.forget(one)
            del self.known[one.owner][one.row.id]
        else:
            self.board.mark(one, state)
            self.known[one.owner][one.row.id].state = state

    @rule(
        id_=ids,
        scope=scopes,
        earlier=st.lists(histories, max_size=3),
        has_id=st.booleans(),
    )
    def what_is_found_is_free_and_fits(
        self, id_: bytes, scope: bytes, earlier: list[bytes], has_id: bool
    ) -> None:
        place = Place(id_, scope, b"x" * 16, 9)
        all_rows = [row for rows in self.known.values() for row in rows.values() if row.place]
        same_id = [row for row in all_rows if row.place and row.place.id == id_]
        candidates = same_id
        if not same_id and not has_id:
            for digest in earlier:
                candidates = [row for row in all_rows if row.place and row.place.history == digest]
                if candidates:
                    break
        found = self.board.find(wanted(place, earlier, has_id=has_id))
        fitting = [row for row in candidates if row.place and row.place.scope == scope]
        free = [row for row in fitting if row.state == "granted"]
        if isinstance(found, Found):
            assert found.row in free
            continuing = [row for row in free if row.place and row.place.history == b"\0" * 16]
            best = continuing or free
            assert found.row.tokens == max(row.tokens for row in best)
            assert found.row in best
        else:
            assert not free
            assert found == ("claimed" if fitting else "scope" if candidates else "first_turn")

    @invariant()
    def the_board_is_what_the_engines_say(self) -> None:
        board = {(one.owner, one.row.id): one.row for one in self.board}
        model = {
            (owner, row.id): row for owner, rows in self.known.items() for row in rows.values()
        }
        assert board == model
        assert len(self.board) == len(model)
        assert self.board.granted == sum(row.state == "granted" for row in model.values())
        for place in (Place(b"i" * 16, b"", b"", 0), Place(b"j" * 16, b"", b"", 0)):
            expected = [
                row.id
                for row in model.values()
                if row.place and row.place.id == place.id and row.state == "granted"
            ]
            assert sorted(one.row.id for one in self.board.of_conversation(place)) == sorted(
                expected
            )

    @invariant()
    def nothing_is_left_of_what_is_gone(self) -> None:
        if not len(self.board):
            assert self.board._by_id == {}
            assert self.board._by_history == {}


BoardModel.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestBoard = BoardModel.TestCase
