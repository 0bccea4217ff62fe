from typing import Any

import pytest

from disaggpair_router.answer import Answer
from disaggpair_router.history import ChatHistory, TextHistory, has_media, scope_digest

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
SYSTEM = {"role": "system", "content": "be brief"}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str = "yes", **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **fields}


ASKED = [SYSTEM, user("is it?")]
MARK = ChatHistory(ASKED).mark_after(Answer("yes"))
THOUGHT = ChatHistory(ASKED).mark_after(Answer("yes", reasoning="hm"))
CALLED = ChatHistory(ASKED).mark_after(Answer("", tool_calls=[CALL]))


def test_the_same_history_with_a_new_message_continues() -> None:
    assert ChatHistory([*ASKED, said(), user("why?")]).difference(MARK) is None


def test_more_than_one_new_message_continues() -> None:
    more = [said(), user("why?"), said("so"), user("oh")]
    assert ChatHistory([*ASKED, *more]).difference(MARK) is None


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(
            said(refusal=None, annotations=[], audio=None, function_call=None, tool_calls=None),
            id="fields-the-openai-library-adds",
        ),
        pytest.param(
            {"role": "assistant", "content": [{"type": "text", "text": "yes"}]}, id="part"
        ),
    ],
)
def test_an_answer_in_another_wrapping_is_the_same(answer: dict[str, Any]) -> None:
    assert ChatHistory([*ASKED, answer, user("why?")]).difference(MARK) is None


@pytest.mark.parametrize(
    "history",
    [
        pytest.param([SYSTEM, user("is it!"), said(), user("why?")], id="h65-edited"),
        pytest.param([user("x"), user("is it?"), said(), user("why?")], id="h68-system"),
        pytest.param([*ASKED, said("yes "), user("why?")], id="h74-white-space"),
        pytest.param([*ASKED, said("no"), user("why?")], id="other-answer"),
        pytest.param([*ASKED, user("yes"), user("why?")], id="other-role"),
        pytest.param([*ASKED, said(tool_calls=[CALL]), user("why?")], id="added-call"),
        pytest.param(
            [*ASKED, {"role": "assistant", "content": [{"type": "text"}]}, user("why?")], id="odd"
        ),
    ],
)
def test_a_changed_history_is_edited(history: list[dict[str, Any]]) -> None:
    assert ChatHistory(history).difference(MARK) == "edited"


@pytest.mark.parametrize(
    "history", [ASKED, [*ASKED, said()], [SYSTEM]], ids=["regenerated", "nothing-new", "cut"]
)
def test_h67_a_history_that_is_not_longer_is_shorter(history: list[dict[str, Any]]) -> None:
    assert ChatHistory(history).difference(MARK) == "shorter"


def test_h66_reasoning_that_was_left_out_is_told_apart_from_an_edit() -> None:
    assert ChatHistory([*ASKED, said(), user("why?")]).difference(THOUGHT) == "reasoning"
    assert ChatHistory([*ASKED, said("no"), user("why?")]).difference(THOUGHT) == "edited"


@pytest.mark.parametrize("key", ["reasoning", "reasoning_content"])
def test_reasoning_that_came_back_continues(key: str) -> None:
    history = ChatHistory([*ASKED, said(**{key: "hm"}), user("why?")])
    assert history.difference(THOUGHT) is None


def test_both_names_of_the_reasoning_at_once_are_one() -> None:
    both = said(reasoning="hm", reasoning_content="hm")
    assert ChatHistory([*ASKED, both, user("why?")]).difference(THOUGHT) is None


@pytest.mark.parametrize("content", [None, ""])
def test_h73_tool_calls_that_came_back_continue(content: str | None) -> None:
    indexed = {"index": 0, **CALL}
    history = [*ASKED, said(tool_calls=[indexed]) | {"content": content}, {"role": "tool"}]
    assert ChatHistory(history).difference(CALLED) is None


@pytest.mark.parametrize("calls", ["odd", ["odd"], [{**CALL, "id": "c2"}]])
def test_other_tool_calls_are_edited(calls: object) -> None:
    history = ChatHistory([*ASKED, said("", tool_calls=calls), {"role": "tool"}])
    assert history.difference(CALLED) == "edited"


def test_the_digests_of_a_history_are_those_of_the_marks_it_continues() -> None:
    history = ChatHistory([*ASKED, said(), user("why?")])
    assert MARK.digest in list(history.digests())
    assert next(history.digests()) == MARK.digest
    assert MARK.digest not in list(ChatHistory([*ASKED, said()]).digests())
    assert list(ChatHistory([]).digests()) == list(TextHistory("a").digests()) == []


def test_a_text_prompt_continues_by_appending() -> None:
    mark = TextHistory("Once").mark_after(Answer(" upon"))
    assert TextHistory("Once upon a").difference(mark) is None
    assert TextHistory("Twas upon a").difference(mark) == "edited"
    assert TextHistory("Once upon").difference(mark) == "shorter"


BASE = {"model": "m", "messages": [], "temperature": 0.1, "max_tokens": 3}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param("tools", [{"a": 1}], id="h69-tools"),
        pytest.param("model", "adapter", id="h60-adapter"),
        pytest.param("cache_salt", "s", id="h79-salt"),
        pytest.param("chat_template_kwargs", {"enable_thinking": False}, id="h70-template"),
        ("chat_template", "x"),
        ("tool_choice", "none"),
        ("response_format", {"type": "json_object"}),
        ("reasoning_effort", "low"),
        ("documents", []),
        ("mm_processor_kwargs", {}),
        pytest.param("a_field_of_a_later_release", 1, id="unknown"),
    ],
)
def test_what_shapes_the_prompt_is_in_the_scope(field: str, value: object) -> None:
    assert scope_digest("chat", {**BASE, field: value}) != scope_digest("chat", BASE)


@pytest.mark.parametrize(
    "change",
    [{"temperature": 0.9}, {"max_tokens": 9}, {"stream": True}, {"seed": 3}, {"messages": [1]}],
)
def test_h63_sampling_is_not_in_the_scope(change: dict[str, Any]) -> None:
    assert scope_digest("chat", BASE | change) == scope_digest("chat", BASE)


def test_the_scope_does_not_depend_on_the_order_of_fields() -> None:
    turned = dict(reversed([*BASE.items(), ("tools", [])]))
    assert scope_digest("chat", turned) == scope_digest("chat", {**BASE, "tools": []})


def test_the_scope_tells_the_two_apis_apart() -> None:
    assert scope_digest("chat", BASE) != scope_digest("completions", BASE)


@pytest.mark.parametrize(
    ("content", "media"),
    [
        ("text", False),
        (None, False),
        ([{"type": "text", "text": "a"}], False),
        pytest.param([{"type": "image_url", "image_url": {"url": "x"}}], True, id="h59"),
        (["odd"], True),
    ],
)
def test_parts_that_are_no_text_are_media(content: object, media: bool) -> None:
    assert has_media([{"role": "user", "content": content}]) is media
