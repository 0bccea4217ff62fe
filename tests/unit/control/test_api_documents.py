"""YAML is read as kubectl reads it, in bounded time, or refused with a sentence."""

from typing import Any

import pytest

from disaggpair_operator.api.documents import MAX_CHARACTERS, MAX_DEPTH, MAX_VALUES, documents


@pytest.mark.parametrize(
    ("text", "document"),
    [
        ("a: 2026-01-01", {"a": "2026-01-01"}),
        ("a: 2026-01-01T00:00:00Z", {"a": "2026-01-01T00:00:00Z"}),
        ("a: =", {"a": "="}),
        ("a: [1, 2.5, true, null, ~, x]", {"a": [1, 2.5, True, None, None, "x"]}),
        ("a: &x [1]\nb: *x\nc: *x", {"a": [1], "b": [1], "c": [1]}),
        ("a: &x {p: 1, q: 2}\nb: {<<: *x, q: 3}", {"a": {"p": 1, "q": 2}, "b": {"p": 1, "q": 3}}),
    ],
)
def test_values_are_those_of_kubectl(text: str, document: Any) -> None:
    assert documents(text) == [document]


def test_empty_documents_are_left_out() -> None:
    assert documents("---\n---\na: 1\n---\n# nothing\n") == [{"a": 1}]


def test_what_is_within_the_bounds_is_read() -> None:
    assert documents("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert documents("[" + ",".join("a" * (MAX_VALUES - 1)) + "]")
    assert documents("a: 1" + " " * (MAX_CHARACTERS - 4)) == [{"a": 1}]


def test_an_alias_counts_with_all_its_values() -> None:
    half = ",".join("a" * (MAX_VALUES // 2 - 1))
    assert documents(f"- &h [{half}]\n- b")
    with pytest.raises(ValueError, match="more than 50,000 values, each alias counted in full"):
        documents(f"- &h [{half}]\n- *h")


def test_an_alias_counts_with_all_its_levels() -> None:
    half = MAX_DEPTH // 2
    deep = f"- &d {'[' * half}{']' * half}"
    assert documents(f"{deep}\n- {'[' * (half - 1)}*d{']' * (half - 1)}")
    with pytest.raises(ValueError, match="deeper than 64"):
        documents(f"{deep}\n- {'[' * half}*d{']' * half}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: *nobody", "undefined alias"),
        ("&a {? *a : b}", "contains itself"),
        ("? [a]\n: b", "unhashable key"),
        ("a: !!timestamp now", "could not determine a constructor"),
        ("a: !!binary eA==", "could not determine a constructor"),
        ("a: !!float x", "'x' cannot be read as float"),
        ("a: !!int [x]", "expected a scalar node"),
        ("a: " + "1:" * 5000 + "1", "a number has 10001 characters"),
        ("a: \x1b", "special characters are not allowed"),
    ],
)
def test_what_is_no_document_is_refused_in_one_line(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as refusal:
        documents(text)
    assert "\n" not in str(refusal.value)
