"""What a body holds is told without making it."""

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disaggpair_router.errors import BadRequest
from disaggpair_router.history import ChatHistory
from disaggpair_router.structure import (
    AT_ONCE_BYTES,
    AT_ONCE_COMMAS,
    AT_ONCE_CONTAINERS,
    MOST_CONTAINERS,
    MOST_FIELDS,
    MOST_MESSAGES,
    MOST_NAME,
    MOST_VALUES,
    check_fields,
    check_values,
    is_quick,
)

TEXT = st.text(st.characters(codec="utf-8"), max_size=5) | st.sampled_from(
    ["{[,", '"', "\\", '\\"', '","', "\\\\,"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


def body(count: int, item: bytes) -> bytes:
    return b'{"a":[' + b",".join([item] * count) + b"]}"


def test_a_body_is_quick_up_to_its_bytes_containers_and_commas() -> None:
    assert is_quick(b"a" * AT_ONCE_BYTES)
    assert not is_quick(b"a" * (AT_ONCE_BYTES + 1))
    assert is_quick(body(AT_ONCE_CONTAINERS - 2, b"[]"))
    assert not is_quick(body(AT_ONCE_CONTAINERS - 1, b"{ }"))
    assert is_quick(body(AT_ONCE_COMMAS + 1, b"12345"))
    assert not is_quick(body(AT_ONCE_COMMAS + 2, b"12345"))


def test_plain_values_of_a_body_below_96_kb_are_quick() -> None:
    assert is_quick(body(45_000, b"1"))


@given(st.lists(st.sampled_from([b"{", b"[", b","]), max_size=4_096))
def test_few_bytes_are_always_quick(pieces: list[bytes]) -> None:
    assert is_quick(b"".join(pieces))


def test_values_are_bounded_by_what_is_json_and_not_text() -> None:
    check_values(body(MOST_CONTAINERS - 2, b"[]"))
    check_values(body(MOST_VALUES - 1, b"1"))
    check_values(orjson.dumps({"a": '{[,"\\' * MOST_VALUES}))
    for raw in (body(MOST_CONTAINERS - 1, b"[]"), body(MOST_VALUES, b"1")):
        with pytest.raises(BadRequest, match="more than 2,000,000 values or 500,000 objects"):
            check_values(raw)


@settings(max_examples=30)
@given(JSON)
def test_counts_are_those_of_the_parsed_body(value: object) -> None:
    # One value short of too many, then what it holds: any container or second value is too many.
    filling = b"[]," * (MOST_CONTAINERS - 2)
    raw = b'{"a":[' + filling + orjson.dumps(value) + b"]}"
    if _containers(value):
        with pytest.raises(BadRequest):
            check_values(raw)
    else:
        check_values(raw)


def _containers(value: object) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(_containers, value.values()))
    if isinstance(value, list):
        return 1 + sum(map(_containers, value))
    return 0


def test_fields_names_and_messages_are_bounded() -> None:
    check_fields({})
    check_fields({f"m{n}": 0 for n in range(MOST_FIELDS)})
    check_fields({"a" * MOST_NAME: 0, "messages": [{}] * MOST_MESSAGES, "input": "a"})
    for fields, why in (
        ({f"m{n}": 0 for n in range(MOST_FIELDS + 1)}, "more than 256 fields"),
        ({"a" * (MOST_NAME + 1): 0}, "more than 256 characters"),
        ({"messages": [{}] * (MOST_MESSAGES + 1)}, "more than 20,000 messages"),
        ({"input": [{}] * (MOST_MESSAGES + 1)}, "more than 20,000 items of input"),
    ):
        with pytest.raises(BadRequest, match=why):
            check_fields(fields)


def test_a_long_history_offers_a_bounded_number_of_places_to_go_on_from() -> None:
    one, more = {"role": "user", "content": "a"}, 1_500
    history = ChatHistory([one] * more)
    found = list(history.digests())
    assert len(found) == 1_000
    assert found[0] == ChatHistory([one] * (more - 1)).prompt().digest
    assert found[-1] == history.beginning(more - 1_000)
