"""What is learned of answers of the responses and messages APIs, and how errors look in them."""

from typing import Any

import orjson
import pytest

from disaggpair_bed.fakes.upstream import decode_handle
from disaggpair_router.answer import Answer
from disaggpair_router.apis.shape import Learned
from disaggpair_router.apis.table import SHAPES
from disaggpair_router.errors import BadRequest, EngineFailed, NoEndpoint, RouterError
from disaggpair_router.kv import Api
from disaggpair_router.relay import StreamRelay
from disaggpair_router.usage import Usage, usage_of

Json = dict[str, Any]


def relay(api: Api, room: int = 100_000) -> StreamRelay:
    return StreamRelay(SHAPES[api].stream, max_event_bytes=100_000, max_answer_bytes=room)


def events(*bodies: Json) -> bytes:
    return b"".join(
        b"event: " + body["type"].encode() + b"\ndata: " + orjson.dumps(body) + b"\n\n"
        for body in bodies
    )


def block(index: int, start: Json, *deltas: Json) -> list[Json]:
    begun = {"type": "content_block_start", "index": index, "content_block": start}
    grown = [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    return [begun, *grown, {"type": "content_block_stop", "index": index}]


START = {
    "type": "message_start",
    "message": {"id": "m", "content": [], "usage": {"input_tokens": 7, "output_tokens": 0}},
}
THOUGHT = block(
    0,
    {"type": "thinking", "thinking": ""},
    {"type": "thinking_delta", "thinking": "h"},
    {"type": "thinking_delta", "thinking": "m"},
    {"type": "signature_delta", "signature": "s"},
)
SAID = block(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": 'a "error": b'})
CALLED = block(
    2,
    {"type": "tool_use", "id": "t", "name": "f", "input": {}},
    {"type": "input_json_delta", "partial_json": '{"b": 1, '},
    {"type": "input_json_delta", "partial_json": '"a": 2}'},
)
STOP: list[Json] = [
    {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": {"input_tokens": 7, "output_tokens": 5},
    },
    {"type": "message_stop"},
]


def test_a_stream_of_messages_passes_unchanged_and_is_understood() -> None:
    one = relay("messages")
    stream = events(START, {"type": "ping"}, *THOUGHT, *SAID, *CALLED, *STOP)
    assert one.feed(stream) == stream
    assert one.is_clean
    assert one.params is None
    assert usage_of(one.usage) == Usage(7, 5, None)
    call = {"id": "t", "type": "function", "function": {"name": "f", "arguments": '{"a":2,"b":1}'}}
    assert one.answer() == Answer('a "error": b', "hm", [call])


def test_a_stream_of_messages_is_the_answer_of_its_whole() -> None:
    one = relay("messages")
    one.feed(events(START, *THOUGHT, *SAID, *CALLED, *STOP))
    whole = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": 'a "error": b'},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 2, "b": 1}},
    ]
    ending = SHAPES["messages"].ending({"content": whole, "stop_reason": "tool_use"})
    assert ending.answer == one.answer()


def test_arguments_that_were_cut_are_no_failure() -> None:
    one = relay("messages")
    one.feed(events(START, *CALLED[:2], *STOP))
    answer = one.answer()
    assert answer is not None
    assert answer.tool_calls[0]["function"]["arguments"] == orjson.dumps('{"b": 1, ').decode()


def test_blocks_and_events_of_other_kinds_say_nothing() -> None:
    ending = SHAPES["messages"].ending({"content": [{"type": "later"}, 3]})
    assert ending.answer == Answer()
    apis: tuple[Api, ...] = ("messages", "responses")
    for api in apis:
        seen = Learned()
        SHAPES[api].stream.learn({"type": "later"}, seen)
        assert seen == Learned()


def test_parameters_would_be_taken_out_of_a_message() -> None:
    one = relay("messages")
    told = {**STOP[0], "kv_transfer_params": decode_handle()}
    assert one.feed(events(told, STOP[1])) == events(*STOP)
    assert one.params == decode_handle()


def test_a_message_without_a_stop_reason_is_not_clean() -> None:
    one = relay("messages")
    one.feed(events(START, *SAID, {**STOP[0], "delta": {"stop_reason": None}}, STOP[1]))
    assert one.done
    assert not one.is_clean
    assert not SHAPES["messages"].ending({"content": None, "stop_reason": None}).is_clean


@pytest.mark.parametrize(
    ("kind", "code"), [("invalid_request_error", 400), ("overloaded_error", 503), ("x", None)]
)
def test_an_error_event_of_messages_ends_the_stream(kind: str, code: int | None) -> None:
    one = relay("messages")
    sent = events(START, *SAID[:2])
    error = {"type": "error", "error": {"type": kind, "message": "no"}}
    assert one.feed(sent + events(error, *STOP)) == sent
    assert one.error == {"type": kind, "message": "no", "code": code}
    assert not one.is_clean


def response(status: str, **fields: Any) -> Json:
    text = {"type": "output_text", "text": "yes", "annotations": []}
    output = [{"type": "message", "role": "assistant", "content": [text], "status": status}]
    usage = {"input_tokens": 7, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 3}}
    return {
        "id": "resp_1",
        "status": status,
        "output": output,
        "usage": usage,
        "tools": [{"parameters": {"properties": {"error": {"type": "string"}}}}],
        **fields,
    }


BEGUN: list[Json] = [
    {
        "type": kind,
        "sequence_number": number,
        "response": {"id": "resp_1", "output": [], "kv_transfer_params": None, "usage": None},
    }
    for number, kind in enumerate(("response.created", "response.in_progress"))
]
DELTA = {"type": "response.output_text.delta", "sequence_number": 2, "delta": "yes"}


@pytest.mark.parametrize(
    ("kind", "status"),
    [("completed", "completed"), ("completed", "incomplete"), ("incomplete", "incomplete")],
)
def test_the_handle_is_in_the_last_event_of_a_response(kind: str, status: str) -> None:
    one = relay("responses")
    last = {"type": f"response.{kind}", "sequence_number": 3}
    told = response(status, kv_transfer_params=decode_handle())
    out = one.feed(events(*BEGUN, DELTA, {**last, "response": told}))
    assert one.params == decode_handle()
    bare = [{**item, "response": {"id": "resp_1", "output": [], "usage": None}} for item in BEGUN]
    assert out == events(*bare, DELTA, {**last, "response": response(status)})
    assert one.is_clean
    assert one.answer() == Answer("yes")
    assert usage_of(one.usage) == Usage(7, 5, 3)


def test_a_response_that_talks_about_the_parameters_is_unchanged() -> None:
    one = relay("responses")
    odd = events(
        {"type": "response.output_text.delta", "delta": 'say "kv_transfer_params":null'},
        {"type": "response.queued", "response": {"tools": [{"a": 1, "kv_transfer_params": None}]}},
    )
    assert one.feed(odd) == odd


@pytest.mark.parametrize(
    "failure",
    [
        {"type": "response.failed", "response": {"status": "failed", "error": {"code": 3}}},
        {"type": "error", "code": "x", "message": "no"},
        {"type": "error", "error": {"code": 400}},
    ],
)
def test_a_failed_response_ends_the_stream(failure: Json) -> None:
    one = relay("responses")
    sent = events(DELTA)
    assert one.feed(sent + events(failure)) == sent
    assert one.error is not None
    assert not one.is_clean


def test_a_response_without_its_last_event_has_no_answer() -> None:
    one = relay("responses")
    one.feed(events(DELTA))
    assert not one.done
    assert one.answer() == Answer()


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_whole_response_can_have_failed(status: str) -> None:
    ending = SHAPES["responses"].ending({"status": status, "output": None})
    assert ending.has_failed
    assert not ending.is_clean


def test_an_error_event_of_responses_has_both_forms_and_the_next_number() -> None:
    sent = events(DELTA)
    event = SHAPES["responses"].error_event(EngineFailed("no"), "r", sent)
    assert event.startswith(b"event: error\ndata: ")
    body = orjson.loads(event.splitlines()[1][6:])
    assert (body["type"], body["sequence_number"], body["message"]) == ("error", 3, "no")
    assert body["error"]["request_id"] == "r"
    assert b'"sequence_number":0' in SHAPES["responses"].error_event(ValueError(), "r", b"")


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (BadRequest("no"), "invalid_request_error", "no"),
        (NoEndpoint("no"), "overloaded_error", "no"),
        (EngineFailed("no"), "api_error", "no"),
        (ValueError("secret"), "api_error", "The router failed to serve the request."),
    ],
)
def test_errors_of_messages_have_anthropics_types(
    error: Exception, kind: str, message: str
) -> None:
    body = orjson.loads(SHAPES["messages"].error_body(error, "r"))
    shown = {"type": kind, "message": message}
    assert body == {"type": "error", "error": shown, "request_id": "r"}
    event = SHAPES["messages"].error_event(error, "r", b"")
    assert event == b"event: error\ndata: " + orjson.dumps(body) + b"\n\n"


def test_another_4xx_is_the_clients_fault() -> None:
    odd = RouterError("no")
    odd.status = 422
    assert b'"invalid_request_error"' in SHAPES["messages"].error_body(odd, "r")


@pytest.mark.parametrize(
    ("value", "usage"),
    [
        (None, Usage()),
        ({}, Usage()),
        ({"prompt_tokens": 3, "completion_tokens": 2}, Usage(3, 2)),
        ({"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 1}}, Usage(3, None, 1)),
        ({"input_tokens": 3, "cache_read_input_tokens": 4, "output_tokens": 1}, Usage(7, 1, 4)),
        (
            {
                "input_tokens": 3,
                "cache_read_input_tokens": None,
                "cache_creation_input_tokens": 2,
                "output_tokens": "x",
            },
            Usage(5),
        ),
    ],
)
def test_counts_go_by_several_names(value: object, usage: Usage) -> None:
    assert usage_of(value) == usage


def test_a_total_needs_both_counts() -> None:
    assert Usage(3, 2).total(default=9) == 5
    assert Usage(3).total(default=9) == Usage(None, 2).total(default=9) == 9
