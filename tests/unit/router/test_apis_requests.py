"""What is made of the bodies of the responses and messages APIs, without an engine."""

from typing import Any

import orjson
import pytest

from disaggpair_router.answer import Answer
from disaggpair_router.apis import blocks, items
from disaggpair_router.apis.table import SHAPES
from disaggpair_router.conversation import Keys
from disaggpair_router.errors import BadRequest
from disaggpair_router.history import ChatHistory
from disaggpair_router.kv import Api
from disaggpair_router.request import RequestReader, TurnRequest

Json = dict[str, Any]

PLAIN = RequestReader((), keys=Keys(b"s"), bidirectional=True)
LEASED = RequestReader(
    (), keys=Keys(b"s"), bidirectional=True, verified_reads=True, finds_untold=True
)
USER = {"role": "user", "content": "hi"}
TEXT = {"type": "text", "text": "hi"}
IMAGE = {"type": "image", "source": {"type": "url", "url": "http://a.test/b.png"}}
CALL = {"type": "tool_use", "id": "t", "name": "f", "input": {"b": 1, "a": 2}}


def read(api: Api, reader: RequestReader = PLAIN, /, **body: Any) -> TurnRequest:
    return reader.read(api, orjson.dumps(body), {}, "r")


def same(api: Api, one: Json, other: Json) -> bool:
    """Whether two bodies have the same history."""
    first, second = (read(api, **body).history for body in (one, other))
    assert first is not None
    assert second is not None
    return first.prompt() == second.prompt()


# -- messages ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(
            {"messages": [USER]}, {"messages": [{"role": "user", "content": [TEXT]}]}, id="block"
        ),
        pytest.param(
            {"messages": [{"role": "user", "content": [TEXT]}]},
            {
                "messages": [
                    {"role": "user", "content": [{**TEXT, "cache_control": {"type": "ephemeral"}}]}
                ]
            },
            id="cache-mark",
        ),
        pytest.param(
            {"messages": [USER], "system": "be brief"},
            {
                "messages": [USER],
                "system": [
                    {"type": "text", "text": "x-anthropic-billing-header: 7"},
                    {"type": "text", "text": "be brief"},
                ],
            },
            id="accounting",
        ),
        pytest.param(
            {"messages": [USER, {"role": "assistant", "content": [TEXT, CALL]}, USER]},
            {
                "messages": [
                    USER,
                    {
                        "role": "assistant",
                        "content": [TEXT, {**CALL, "input": {"a": 2, "b": 1}}],
                    },
                    USER,
                ]
            },
            id="order-of-arguments",
        ),
        pytest.param(
            {"messages": [USER, {"role": "assistant", "content": "yes"}, USER]},
            {
                "messages": [
                    USER,
                    {"role": "assistant", "content": [{"type": "text", "text": "yes"}]},
                    USER,
                ]
            },
            id="answer-as-text",
        ),
    ],
)
def test_what_renders_alike_is_the_same_history(one: Json, other: Json) -> None:
    assert same("messages", one, other)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"messages": [{"role": "user", "content": "ho"}]}, id="text"),
        pytest.param({"messages": [USER], "system": "be long"}, id="h68-system"),
        pytest.param({"messages": [{"role": "user", "content": [TEXT, TEXT]}]}, id="h74-two"),
        pytest.param(
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "tool_result", "tool_use_id": "t", "content": "hi"}],
                    }
                ]
            },
            id="result",
        ),
    ],
)
def test_what_renders_otherwise_is_another_history(other: Json) -> None:
    assert not same("messages", {"messages": [USER], "system": "be brief"}, other)


def test_two_texts_of_an_answer_are_not_their_sum() -> None:
    two = {"role": "assistant", "content": [TEXT, TEXT]}
    one = {"role": "assistant", "content": "hihi"}
    assert not same("messages", {"messages": [USER, two, USER]}, {"messages": [USER, one, USER]})


def test_an_answer_of_blocks_continues_its_turn() -> None:
    content: list[Json] = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "yes"},
        CALL,
    ]
    ending = SHAPES["messages"].ending({"content": content, "stop_reason": "tool_use"})
    assert ending.is_clean
    asked = read("messages", messages=[USER]).history
    assert asked is not None
    mark = asked.mark_after(ending.answer)
    told = [{**content[0], "signature": "other"}, *content[1:]]
    later = read("messages", messages=[USER, {"role": "assistant", "content": told}, USER]).history
    assert later is not None
    assert later.difference(mark) is None


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user", "content": [TEXT, IMAGE]}]},
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "t", "content": [IMAGE]}],
                }
            ]
        },
        {"messages": [{"role": "user", "content": [{"type": "later"}]}]},
    ],
)
def test_h59_media_need_engines_that_compare(body: Json) -> None:
    assert read("messages", PLAIN, **body).history is None
    assert read("messages", LEASED, **body).history is not None


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"messages": [USER, {"role": "system", "content": "x"}]}, id="system"),
        pytest.param({"messages": [USER, {"role": "assistant", "content": "x"}]}, id="continued"),
    ],
)
def test_prompts_that_are_put_together_otherwise_need_engines_that_compare(body: Json) -> None:
    assert read("messages", PLAIN, **body).history is None
    assert read("messages", LEASED, **body).history is not None


@pytest.mark.parametrize("messages", [None, 3, "x", [1], [None]])
def test_malformed_messages_have_no_history(messages: object) -> None:
    assert read("messages", LEASED, messages=messages).history is None


@pytest.mark.parametrize("content", [None, 3, [1], ["x"], [{"type": "tool_result", "content": 3}]])
def test_odd_content_is_compared_as_it_is(content: object) -> None:
    for role in ("user", "assistant"):
        message = {"role": role, "content": content}
        assert read("messages", LEASED, messages=[message, USER], system=content).history


@pytest.mark.parametrize("reader", [PLAIN, LEASED])
def test_a_stream_of_messages_runs_alone_where_its_handle_would_be_lost(
    reader: RequestReader,
) -> None:
    streamed = read("messages", reader, messages=[USER], stream=True)
    assert streamed.alone == (reader is PLAIN)
    assert not read("messages", reader, messages=[USER]).alone
    assert not read("responses", reader, input="hi", stream=True).alone


@pytest.mark.parametrize(
    ("api", "stream", "by_release", "told"),
    [
        ("chat", False, False, True),
        ("chat", True, False, False),
        ("chat", True, True, True),
        ("responses", True, False, True),
        ("messages", True, True, False),
        ("messages", False, False, True),
    ],
)
def test_who_tells_of_the_handle(api: Api, stream: bool, by_release: bool, told: bool) -> None:
    request = read(api, stream=stream)
    assert request.is_told(handle_in_stream=by_release) == told


@pytest.mark.parametrize("field", ["stop", "stop_sequences"])
def test_stop_strings_go_by_two_names(field: str) -> None:
    assert read("messages", PLAIN, messages=[USER], **{field: ["x"]}).has_stop
    assert not read("messages", PLAIN, messages=[USER], **{field: []}).has_stop


# -- responses ---------------------------------------------------------------------------------

ANSWER: list[Json] = [
    {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "status": None,
        "content": [{"type": "reasoning_text", "text": "hm"}],
    },
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "yes", "annotations": [], "logprobs": None}],
    },
    {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}"},
]


def test_the_items_of_an_answer_are_one_message() -> None:
    ending = SHAPES["responses"].ending({"output": ANSWER, "status": "completed"})
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    assert ending.answer == Answer("yes", "hm", [call])
    assert ending.is_clean
    result = {"type": "function_call_output", "call_id": "c", "output": "42"}
    later = read("responses", input=[USER, *ANSWER, result]).history
    asked = read("responses", input="hi").history
    assert later is not None
    assert asked is not None
    assert later.difference(asked.mark_after(ending.answer)) is None


def test_the_history_is_that_of_the_chat() -> None:
    given = read("responses", instructions="be brief", input="hi").history
    assert given is not None
    assert given.prompt() == ChatHistory([{"role": "system", "content": "be brief"}, USER]).prompt()


@pytest.mark.parametrize(
    "item",
    [
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "message", "id": "m", "role": "user", "content": "hi", "status": "completed"},
    ],
)
def test_ids_and_wrappings_of_items_are_left_out(item: Json) -> None:
    assert same("responses", {"input": "hi"}, {"input": [item]})


def said(text: str) -> Json:
    return {"role": "assistant", "content": text}


def part(text: str) -> Json:
    return {"type": "input_text", "text": text}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"input": [USER]}, {"input": [{**USER, "content": "ho"}]}),
        ({"input": [USER]}, {"input": [USER, USER]}),
        (
            {"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}]},
            {
                "input": [
                    {
                        "type": "function_call",
                        "call_id": "c",
                        "name": "f",
                        "arguments": "{}",
                        "namespace": "n",
                    }
                ]
            },
        ),
        ({"input": [said("a"), said("b")]}, {"input": [said("ab")]}),
        ({"input": [{**USER, "content": [part("a"), part("b")]}]}, {"input": "ab"}),
    ],
)
def test_other_items_are_another_history(one: Json, other: Json) -> None:
    assert not same("responses", one, other)


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ({"content": [{"text": "a"}], "summary": [{"text": "b"}]}, "a"),
        ({"summary": [{"text": "b"}]}, "b"),
        ({"encrypted_content": "c"}, "c"),
    ],
)
def test_reasoning_is_where_engines_look_for_it(item: Json, text: str) -> None:
    made = items.messages_of({"input": [{"type": "reasoning", **item}]})
    assert made == [{"role": "assistant", "reasoning": text}]


def test_calls_join_the_answer_before_them() -> None:
    call = ANSWER[2]
    made = items.messages_of({"input": [call, call]})
    assert made is not None
    assert [len(message["tool_calls"]) for message in made] == [2]


def test_an_unknown_item_is_a_message_of_its_own() -> None:
    later = {"type": "later", "id": "x"}
    assert items.messages_of({"input": [later]}) == [{"role": "item", "item": later}]


@pytest.mark.parametrize(
    "item",
    [
        {"role": "user", "content": [{"type": "input_image", "image_url": "http://a.test"}]},
        {"role": "user", "content": [3]},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image"}]},
        {"type": "item_reference", "id": "x"},
    ],
)
def test_h59_other_items_need_engines_that_compare(item: Json) -> None:
    assert read("responses", input=[item]).history is None
    assert read("responses", LEASED, input=[item]).history is not None


def test_reasoning_and_text_need_no_comparing_engines() -> None:
    assert read("responses", input=[USER, *ANSWER, USER]).history is not None


@pytest.mark.parametrize("given", [None, 3, [3], [USER, None]])
def test_malformed_input_has_no_history(given: object) -> None:
    assert read("responses", LEASED, input=given).history is None


@pytest.mark.parametrize("status", ["in_progress", "incomplete"])
def test_an_answer_that_is_to_be_continued_needs_engines_that_compare(status: str) -> None:
    last = {**ANSWER[1], "status": status}
    assert read("responses", input=[USER, last]).history is None
    assert read("responses", LEASED, input=[USER, last]).history is not None


@pytest.mark.parametrize("field", ["previous_response_id", "conversation", "background"])
def test_h98_state_is_refused(field: str) -> None:
    with pytest.raises(BadRequest, match=field):
        read("responses", PLAIN, input="hi", **{field: True})
    assert not read("responses", PLAIN, input="hi", **{field: None}).alone


@pytest.mark.parametrize("given", [{}, {"store": True}, {"store": None}, {"store": False}])
def test_nothing_is_stored(given: Json) -> None:
    assert read("responses", PLAIN, input="hi", **given).body["store"] is False


@pytest.mark.parametrize(
    ("tools", "alone"),
    [
        (None, False),
        ([], False),
        ([{"type": "function"}, {"type": "custom"}], False),
        ([{"type": "namespace", "tools": [{"type": "function"}]}], False),
        ([{"type": "namespace", "tools": [{"type": "mcp"}]}], True),
        ([{"type": "namespace"}], True),
        ([{"type": "function"}, {"type": "web_search_preview"}], True),
        ([3], True),
    ],
)
def test_h49_tools_of_the_engine_share_no_parameters(tools: object, alone: bool) -> None:
    assert read("responses", LEASED, input="hi", tools=tools).alone == alone


@pytest.mark.parametrize("field", ["max_output_tokens", "include", "stream", "metadata", "store"])
def test_what_does_not_shape_the_prompt_is_not_in_scope(field: str) -> None:
    plain = read("responses", input="hi")
    assert read("responses", PLAIN, input="hi", **{field: True}).scope == plain.scope
    assert read("responses", input="hi", tools=[{"type": "function"}]).scope != plain.scope
    assert read("messages", messages=[USER], system="x").scope == (
        read("messages", messages=[USER]).scope
    )


# -- prompts of token ids ----------------------------------------------------------------------


@pytest.mark.parametrize("prompt", [[], [True], [-1], [2**63], ["x"], [[1]]])
def test_other_lists_are_no_token_ids(prompt: object) -> None:
    assert read("completions", LEASED, prompt=prompt).history is None


def test_token_ids_continue_a_prompt_that_they_begin_with() -> None:
    short, long, other = (
        read("completions", LEASED, prompt=prompt).history
        for prompt in ([1, 2], [1, 2, 3], [1, 3, 3])
    )
    assert short is not None
    assert long is not None
    assert other is not None
    mark = short.mark_after(Answer("unknown ids"))
    assert mark == short.prompt()
    assert long.difference(mark) is None
    assert other.difference(mark) == "edited"
    assert short.difference(mark) == "shorter"
    assert long.beginning(2) == mark.digest
    assert long.beginning(3) is None
    assert list(long.digests()) == []
    assert read("completions", prompt=[1, 2]).history is None


def test_media_of_a_chat_may_use_engines_that_compare() -> None:
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
    assert read("chat", messages=[image]).history is None
    assert read("chat", LEASED, messages=[image]).history is not None
    assert read("chat", LEASED, messages=[3]).history is None


def test_blocks_of_other_kinds_are_told_apart() -> None:
    redacted = {"type": "redacted_thinking", "data": "x"}
    answer = {"role": "assistant", "content": [redacted, TEXT]}
    assert not blocks.has_other_blocks({"messages": [answer]})
    made = blocks.messages_of({"messages": [answer]})
    assert made == [{"role": "assistant", "content": [redacted, TEXT]}]
