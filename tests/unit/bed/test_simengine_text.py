"""Tokens, template and stop strings of the simulated engine."""

from typing import Any

import pytest

from disaggpair_bed.simengine import tokens
from disaggpair_bed.simengine.decisions import Ending
from disaggpair_bed.simengine.job import Output
from disaggpair_bed.simengine.sequence import Delta, Detokenizer
from disaggpair_bed.simengine.template import ChatTemplate, TemplateError
from disaggpair_bed.simengine.toymodel import ToyModel

USER = {"role": "user", "content": "hello there"}


def render(*messages: Any, template: ChatTemplate | None = None, **header: Any) -> list[int]:
    return (template or ChatTemplate()).render(messages, header).tolist()


@pytest.mark.parametrize(
    "text", ["", "a", "abcd", "abcdefg", "naïve café", "数据中心", "🙂🙂x", "\x00a"]
)
def test_text_survives_the_tokenizer(text: str) -> None:
    assert tokens.decode(tokens.encode(text)) == text


def test_four_ascii_characters_are_one_token() -> None:
    assert len(tokens.encode("a" * 96_000)) == 24_000


def test_a_shorter_piece_is_another_token_than_a_padded_one() -> None:
    assert tokens.encode("abc") != tokens.encode("abc\0")


def test_special_tokens_have_no_text() -> None:
    assert tokens.decode([tokens.BEGIN, *tokens.encode("hi"), tokens.END_OF_TURN]) == "hi"


def test_the_history_of_the_next_turn_begins_with_prompt_and_answer() -> None:
    model = ToyModel()
    answer = [model.sample(k * 7919, k, 30, may_end=True) for k in range(31)]
    assert answer[-1] == tokens.END_OF_TURN
    reply = {"role": "assistant", "content": tokens.decode(answer)}
    following = render(USER, reply, {"role": "user", "content": "more"})
    begin = render(USER) + answer
    assert following[: len(begin)] == begin


@pytest.mark.parametrize(
    ("template", "reply"),
    [
        (ChatTemplate(strip_reasoning=True), {"content": "Abba", "reasoning": "hmmm"}),
        (ChatTemplate(trim=True), {"content": "Abba "}),
        (ChatTemplate(unstable_generation_prompt=True), {"content": "Abba"}),
    ],
)
def test_each_switch_breaks_the_prefix(template: ChatTemplate, reply: dict[str, str]) -> None:
    thinking = reply.get("reasoning", "")
    answer = [tokens.THINK_START, *tokens.encode(thinking), tokens.THINK_END] if thinking else []
    answer += tokens.encode(reply["content"]).tolist()
    begin = render(USER, template=template) + answer
    following = render(USER, {"role": "assistant", **reply}, template=template)
    assert following[: len(begin)] != begin


def test_a_stable_template_keeps_the_thinking() -> None:
    answer = [tokens.THINK_START, *tokens.encode("hmmm"), tokens.THINK_END, *tokens.encode("Abba")]
    begin = render(USER) + answer
    reply = {"role": "assistant", "content": "Abba", "reasoning": "hmmm"}
    assert render(USER, reply)[: len(begin)] == begin


def test_the_header_is_part_of_the_prompt() -> None:
    plain = render(USER)
    fields: list[tuple[str, Any]] = [
        ("tools", [{"type": "function"}]),
        ("tool_choice", "auto"),
        ("response_format", {"type": "json_object"}),
        ("reasoning_effort", "low"),
        ("chat_template_kwargs", {"thinking": False}),
    ]
    for field, value in fields:
        assert render(USER, **{field: value}) != plain
    assert render(USER, template=ChatTemplate(date="2026-11-30")) != plain


def test_the_order_of_tools_counts() -> None:
    tools = [{"name": "a"}, {"name": "b"}]
    assert render(USER, tools=tools) != render(USER, tools=tools[::-1])


def test_text_parts_are_joined_and_pictures_count() -> None:
    parts = [{"type": "text", "text": "hello "}, {"type": "text", "text": "there"}]
    assert render({"role": "user", "content": parts}) == render(USER)
    one, two = (
        render({"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]})
        for url in ("http://a", "http://b")
    )
    assert one != two


def test_the_spacing_of_tool_arguments_is_lost() -> None:
    def call(arguments: str) -> dict[str, Any]:
        function = {"name": "f", "arguments": arguments}
        return {"role": "assistant", "content": None, "tool_calls": [{"function": function}]}

    assert render(call('{"a": 1}')) == render(call('{"a":1}'))


def test_the_last_message_is_continued_on_request() -> None:
    reply = {"role": "assistant", "content": "Abba"}
    prompt = ChatTemplate().render([USER, reply], {}, continue_final_message=True)
    assert prompt[-1] == tokens.encode("Abba")[0]


@pytest.mark.parametrize(
    "message",
    [
        "hello",
        {"content": "x"},
        {"role": 3, "content": "x"},
        {"role": "user", "content": 5},
        {"role": "user", "content": ["x"]},
        {"role": "assistant", "tool_calls": "x"},
        {"role": "assistant", "tool_calls": [{}]},
        {"role": "assistant", "tool_calls": [{"function": {"arguments": "{"}}]},
    ],
)
def test_a_message_that_cannot_be_rendered_is_refused(message: Any) -> None:
    with pytest.raises(TemplateError):
        render(message)


def feed(
    detokenizer: Detokenizer, text: str, ending: Ending | None = Ending.STOPPED
) -> list[Delta]:
    """Deltas of a text, the end token after it."""
    outputs = [Output("r", token) for token in tokens.encode(text)]
    return [
        detokenizer.feed(output)
        for output in [*outputs, Output("r", tokens.END_OF_TURN, ending=ending)]
    ]


def test_a_stop_string_across_tokens_is_found_and_never_shown() -> None:
    deltas = feed(Detokenizer(stop=("defg",)), "abcdefgh")
    reasons = [delta.finish_reason for delta in deltas]
    assert reasons[1] == "stop"
    assert deltas[1].stop_reason == "defg"
    assert "".join(delta.text for delta in deltas[:2]) == "abc"


def test_a_stop_string_is_kept_on_request() -> None:
    deltas = feed(Detokenizer(stop=("defg",), keep_stop=True), "abcdefgh")
    assert "".join(delta.text for delta in deltas[:2]) == "abcdefg"


def test_the_beginning_of_a_stop_string_is_shown_at_the_end() -> None:
    deltas = feed(Detokenizer(stop=("defg",)), "abcdef")
    assert "".join(delta.text for delta in deltas) == "abcdef"
    assert deltas[-1].stop_reason is None


def test_two_spellings_are_not_what_the_tokenizer_writes() -> None:
    model = ToyModel(two_spellings=True)
    answer = [model.sample(k * 7919, k, 30, may_end=True) for k in range(10)]
    assert tokens.encode(tokens.decode(answer)).tolist() != answer
