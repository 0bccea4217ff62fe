from typing import Any

import orjson
import pytest

from disaggpair_bed.fakes.upstream import chat_events, decode_handle
from disaggpair_router.answer import Answer
from disaggpair_router.apis.completions import CompletionStream
from disaggpair_router.relay import StreamRelay

STREAM = CompletionStream()


def relay(**limits: int) -> StreamRelay:
    return StreamRelay(
        STREAM, **{"max_event_bytes": 100_000, "max_answer_bytes": 100_000, **limits}
    )


def event(chunk: Any) -> bytes:
    return b"data: " + orjson.dumps(chunk) + b"\n\n"


def test_h22_the_handle_is_found_and_taken_out() -> None:
    one = relay()
    out = one.feed(chat_events(decode_handle()))
    assert one.params == decode_handle()
    assert b"kv_transfer_params" not in out
    assert out.endswith(b"data: [DONE]\n\n")
    assert one.is_clean
    assert one.answer() == Answer("Hello there")


def test_bytes_without_parameters_pass_unchanged() -> None:
    odd = (
        b'\xef\xbb\xbfdata: {"choices": [ {"delta": {"content":"\xc3\xa9"} } ] }\r\n\r\n'
        b": keep-alive\n\n"
        b"event: x\nid: 7\nretry: 3\ndata: not json\n\n"
        b'data: {"a":\ndata: 1}\n\n'
    )
    assert relay().feed(odd) == odd


def test_h22_an_empty_member_is_cut_out_of_the_bytes() -> None:
    one = relay()
    kept = b'data: {"choices":[],"note":"a, b"}\r\n\r\n'
    sent = kept.replace(b"}\r", b',"kv_transfer_params":null}\r')
    assert one.feed(sent) == kept
    assert one.params is None


def test_an_answer_that_talks_about_the_parameters_is_unchanged() -> None:
    one = relay()
    text = event({"choices": [{"delta": {"content": 'say "kv_transfer_params":null, please'}}]})
    assert one.feed(text) == text
    assert relay().feed(b"data: kv_transfer_params\n\n") == b"data: kv_transfer_params\n\n"


def test_an_empty_member_with_spaces_is_taken_out() -> None:
    one = relay()
    assert one.feed(b'data: {"a": 1, "kv_transfer_params": null}\n\n') == b'data: {"a":1}\n\n'
    assert one.params is None


def test_other_fields_of_the_handles_event_stay() -> None:
    sent = b"id: 7\r\n: note\r\n" + event({"a": 1, "kv_transfer_params": {"b": 2}})
    one = relay()
    assert one.feed(sent) == b'id: 7\r\n: note\r\ndata: {"a":1}\n\n'
    assert one.params == {"b": 2}


def test_parameters_over_several_data_lines_are_taken_out() -> None:
    one = relay()
    sent = b'data: {"a": 1,\r\ndata: "kv_transfer_params": null}\r\nid: 1\r\n\r\n'
    assert one.feed(sent) == b'data: {"a":1}\r\nid: 1\r\n\r\n'


def test_h23_the_handle_may_come_before_the_usage_chunk() -> None:
    one = relay()
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    stream = chat_events(decode_handle()).removesuffix(b"data: [DONE]\n\n")
    one.feed(stream)
    assert not one.is_clean
    one.feed(event({"choices": [], "usage": usage}) + b"data: [DONE]\n\n")
    assert one.usage == usage
    assert one.is_clean
    assert one.params == decode_handle()


def test_h20_an_error_event_is_held_back() -> None:
    one = relay()
    out = one.feed(event({"error": {"message": "x", "code": 500}}) + b"data: [DONE]\n\n")
    assert one.error == {"message": "x", "code": 500}
    assert out == b""
    assert not one.is_clean


def test_an_error_that_is_no_object_counts_too() -> None:
    one = relay()
    one.feed(b'data: {"error": "x"}\n\n')
    assert one.error == {}


@pytest.mark.parametrize("reason", ["error", "abort", "repetition"])
def test_h24_another_finish_reason_is_not_a_clean_end(reason: str) -> None:
    one = relay()
    one.feed(chat_events(decode_handle(), reason=reason))
    assert one.finish_reason == reason
    assert not one.is_clean


def test_h21_a_stream_without_its_end_marker_is_not_clean() -> None:
    one = relay()
    one.feed(chat_events(decode_handle()).removesuffix(b"data: [DONE]\n\n"))
    assert not one.is_clean


def test_bytes_after_the_last_event_are_not_clean() -> None:
    one = relay()
    one.feed(chat_events(decode_handle()) + b"data: x")
    assert not one.is_clean


def test_a_long_answer_is_not_kept() -> None:
    one = relay(max_answer_bytes=100)
    one.feed(chat_events(decode_handle()))
    assert one.answer() is None


def test_chunks_of_a_strange_shape_do_no_harm() -> None:
    one = relay()
    odd = [
        b'data: {"finish_reason": "x"}\n\n',
        b'data: {"choices": ["finish_reason", {"finish_reason": "stop"}]}\n\n',
        b'data: ["usage", {"error": 1}]\n\n',
        b'data: {"usage": {"a": 1}, "choices": [7]}\n\n',
    ]
    assert one.feed(b"".join(odd)) == b"".join(odd)
    assert one.finish_reason == "stop"
    assert one.answer() == Answer()
