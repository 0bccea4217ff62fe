from dataclasses import replace

import pytest

from disaggpair_bed.fakes.upstream import decode_handle
from disaggpair_router.answer import Answer
from disaggpair_router.history import ChatHistory
from disaggpair_router.kv import checked_handle
from disaggpair_router.session import (
    ENTRY_BYTES,
    Claim,
    Conversations,
    Entry,
    Holder,
    Miss,
    MissReason,
    unverifiable,
)

ASKED = [{"role": "user", "content": "is it?"}]
MARK = ChatHistory(ASKED).mark_after(Answer("yes"))
NEXT = ChatHistory([*ASKED, {"role": "assistant", "content": "yes"}, *ASKED])
HANDLE = checked_handle(decode_handle())
HOLDER = Holder("d-1", "life-1")


def table(max_entries: int = 10, max_bytes: int = 1_000_000) -> Conversations:
    return Conversations(max_entries=max_entries, max_bytes=max_bytes, memory_s=100.0)


def entry(key: bytes = b"a", **changes: object) -> Entry:
    whole = Entry(
        key=key,
        scope=b"s",
        mark=MARK,
        handle=HANDLE,
        holder=HOLDER,
        model="m",
        deadline=50.0,
        headers={"authorization": "x"},
    )
    return replace(whole, **changes)  # type: ignore[arg-type]  # a stand-in


def claim(one: Conversations, key: bytes = b"a", now: float = 0.0) -> Claim | Miss:
    return one.claim(key, b"s", NEXT, now)


def test_a_stored_handle_is_claimed_by_the_next_turn() -> None:
    one = table()
    one.store(entry())
    assert one.handles == 1
    assert claim(one) == Claim(entry(), HANDLE)
    assert one.handles == 0


def test_h01_a_handle_is_claimed_once() -> None:
    one = table()
    one.store(entry())
    claim(one)
    assert claim(one) == Miss("claimed")


def test_an_unknown_conversation_is_a_first_turn() -> None:
    assert claim(table()) == Miss("first_turn")


def test_h05_a_handle_is_not_given_out_at_its_deadline() -> None:
    one = table()
    one.store(entry())
    assert claim(one, now=50.0) == Miss("expired")
    one.store(entry())
    assert isinstance(claim(one, now=49.9), Claim)


def test_another_scope_gives_the_blocks_back() -> None:
    one = table()
    one.store(entry())
    assert one.claim(b"a", b"t", NEXT, 0.0) == Miss("scope", entry())


def test_another_history_gives_the_blocks_back() -> None:
    one = table()
    one.store(entry())
    assert one.claim(b"a", b"s", ChatHistory(ASKED), 0.0) == Miss("shorter", entry())
    assert claim(one) == Miss("claimed")


@pytest.mark.parametrize("reason", ["no_handle", "tools"])
def test_h25_a_turn_without_a_handle_is_remembered_with_its_reason(reason: MissReason) -> None:
    one = table()
    one.store(entry(handle=None, reason=reason))
    assert claim(one) == Miss(reason)
    assert one.holder(b"a") == HOLDER


def test_a_handle_without_a_mark_is_a_miss() -> None:
    one = table()
    one.store(entry(mark=None, reason="unsupported"))
    assert claim(one) == Miss("unsupported")


def test_h11_an_overwritten_handle_is_given_back() -> None:
    one = table()
    assert one.store(entry()) == []
    assert one.store(entry(deadline=60.0)) == [entry()]
    claim(one)
    assert one.store(entry()) == []


def test_h81_the_oldest_conversation_makes_room() -> None:
    one = table(max_entries=2)
    one.store(entry(b"a"))
    one.store(entry(b"b"))
    one.store(entry(b"a"))
    assert one.store(entry(b"c")) == [entry(b"b")]
    assert len(one) == 2
    assert one.handles == 2


def test_an_entry_without_a_handle_makes_room_silently() -> None:
    one = table(max_entries=1)
    one.store(entry(b"a", handle=None))
    assert one.store(entry(b"b")) == []
    assert [item.key for item in one] == [b"b"]


def test_h28_the_table_is_bounded_in_bytes() -> None:
    size = ENTRY_BYTES + len(HANDLE.raw) + len("x")  # the credentials
    one = table(max_bytes=2 * size)
    for key in (b"a", b"b", b"c"):
        one.store(entry(key))
    assert [item.key for item in one] == [b"b", b"c"]
    assert one.size_bytes == 2 * size


def test_h03_an_unsent_handle_goes_back_with_its_old_deadline() -> None:
    one = table()
    one.store(entry())
    first = claim(one)
    assert isinstance(first, Claim)
    assert one.restore(first) == []
    assert claim(one, now=50.0) == Miss("expired")


def test_an_unsent_handle_does_not_replace_a_newer_one() -> None:
    one = table()
    one.store(entry())
    first = claim(one)
    assert isinstance(first, Claim)
    one.store(entry(deadline=60.0))
    assert one.restore(first) == [entry()]
    assert claim(one) == Claim(entry(deadline=60.0), HANDLE)


def test_an_unsent_handle_of_a_forgotten_conversation_is_given_back() -> None:
    one = table(max_entries=1)
    one.store(entry())
    first = claim(one)
    assert isinstance(first, Claim)
    one.store(entry(b"b"))
    assert one.restore(first) == [entry()]


def test_h29_handles_of_an_engine_that_is_gone_are_dropped() -> None:
    one = table()
    one.store(entry(b"a"))
    one.store(entry(b"b", holder=Holder("d-2", "life-1")))
    assert one.forget_holder("d-1") == 1
    assert claim(one, b"a") == Miss("other_engine")
    assert isinstance(claim(one, b"b"), Claim)


def test_h30_handles_of_an_earlier_life_are_dropped() -> None:
    one = table()
    one.store(entry(b"a"))
    one.store(entry(b"b", holder=Holder("d-1", "life-2")))
    assert one.forget_holder("d-1", but="life-2") == 1
    assert one.handles == 1


def test_a_conversation_is_found_by_its_history() -> None:
    one = table()
    one.store(entry(owner=b"o"))
    assert one.continued_by(b"o", [b"x", MARK.digest]) == b"a"
    assert one.continued_by(b"p", [MARK.digest]) is None
    claim(one)
    assert one.continued_by(b"o", [MARK.digest]) is None


def test_of_two_conversations_with_one_history_the_newer_is_found() -> None:
    one = table()
    one.store(entry(b"a"))
    one.store(entry(b"b"))
    claim(one, b"a")
    assert one.continued_by(b"", [MARK.digest]) == b"b"


def test_an_expired_handle_goes_and_its_reason_stays_for_a_while() -> None:
    one = table()
    one.store(entry())
    assert one.expire(49.0) == 0
    assert one.expire(50.0) == 1
    assert claim(one, now=60.0) == Miss("expired")
    one.expire(149.0)
    assert len(one) == 1
    one.expire(150.0)
    assert len(one) == 0
    assert claim(one) == Miss("first_turn")


def test_credentials_go_with_the_handle() -> None:
    one = table()
    one.store(entry())
    claim(one)
    assert [item.headers for item in one] == [{}]
    assert "authorization" not in repr(entry())


def test_there_is_no_holder_of_an_unknown_conversation() -> None:
    assert table().holder(b"a") is None


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer("plain"), None),
        pytest.param(Answer("a", reasoning="b"), "reasoning", id="h66"),
        pytest.param(Answer("a", tool_calls=[{}]), "tools", id="h73"),
        pytest.param(Answer("a\n"), "whitespace", id="h74"),
    ],
)
def test_answers_that_a_template_may_change_are_named(
    answer: Answer, reason: MissReason | None
) -> None:
    assert unverifiable("chat", answer) == reason


def test_h72_a_text_prompt_is_named_always() -> None:
    assert unverifiable("completions", Answer("plain")) == "text_prompt"
