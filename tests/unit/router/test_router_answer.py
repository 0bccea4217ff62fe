from typing import Any

import orjson
import pytest

from disaggpair_bed.fakes.upstream import completion
from disaggpair_router.answer import DONE, Answer, answer_from_chunks, answer_of, as_events

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}


def delta(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields}]}


def chunks_of(body: dict[str, Any], *, include_usage: bool = False) -> list[dict[str, Any]]:
    *events, done = as_events(body, include_usage=include_usage)
    assert done == DONE
    return [orjson.loads(event.removeprefix(b"data: ")) for event in events]


def test_a_whole_answer_and_its_stream_are_the_same_answer() -> None:
    body = completion(None, "Hi", reasoning="because", tool_calls=[CALL])
    whole = answer_of(body)
    assert whole == Answer("Hi", "because", [CALL])
    assert answer_from_chunks(chunks_of(body)) == whole


def test_tool_calls_in_pieces_are_put_together_by_index() -> None:
    pieces = [
        delta(tool_calls=[{"index": 1, "id": "c2", "function": {"name": "g", "arguments": ""}}]),
        delta(tool_calls=[{"index": 0, "id": "c1", "type": "function", "function": {"name": "f"}}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": '{"a":'}}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": " 1}"}}, "odd"]),
        delta(tool_calls=[{"index": "odd"}]),
    ]
    first, second = answer_from_chunks(pieces).tool_calls
    assert first == CALL
    assert second["function"]["name"] == "g"


@pytest.mark.parametrize("key", ["reasoning", "reasoning_content"])
def test_both_names_of_the_reasoning_are_known(key: str) -> None:
    assert answer_of(completion(None, "Hi", **{key: "why"})).reasoning == "why"
    assert answer_from_chunks([delta(**{key: "why"})]).reasoning == "why"


def test_a_text_completion_is_known_in_both_forms() -> None:
    body = {
        "object": "text_completion",
        "choices": [{"index": 0, "text": "abc", "finish_reason": "stop", "stop_reason": None}],
    }
    assert answer_of(body) == Answer("abc")
    chunks = chunks_of(body)
    assert answer_from_chunks(chunks) == Answer("abc")
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("body", [{}, {"choices": None}, {"choices": [3]}, {"choices": [{}]}])
def test_an_unknown_shape_is_an_empty_answer(body: dict[str, Any]) -> None:
    assert answer_of(body) == Answer()


def test_the_message_is_what_a_client_sends_back() -> None:
    answer = Answer("Hi", "why", [CALL])
    assert answer.message() == {
        "role": "assistant",
        "content": "Hi",
        "reasoning": "why",
        "tool_calls": [CALL],
    }
    assert "reasoning" not in answer.message(reasoning=False)
    assert Answer("Hi").message() == {"role": "assistant", "content": "Hi"}


def test_events_begin_with_the_role_and_end_with_the_reason() -> None:
    body = completion(None, "Hi", tool_calls=[CALL])
    body["choices"][0] |= {"logprobs": {"content": []}, "stop_reason": 7}
    first, text, calls, last = chunks_of(body)
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert first["object"] == "chat.completion.chunk"
    assert text["choices"][0]["logprobs"] == {"content": []}
    assert calls["choices"][0]["delta"]["tool_calls"] == [{"index": 0, **CALL}]
    assert last["choices"][0] == {
        "index": 0,
        "delta": {},
        "finish_reason": "stop",
        "stop_reason": 7,
    }


def test_fields_that_are_not_known_are_streamed_on_too() -> None:
    body = completion(None, "Hi", annotations=[], refusal=None, x_note="n")
    body |= {"system_fingerprint": "f", "prompt_logprobs": None}
    body["choices"][0]["token_ids"] = [1, 2]
    first, note, text, _ = chunks_of(body)
    assert first["system_fingerprint"] == "f"
    assert "prompt_logprobs" not in first
    assert note["choices"][0]["delta"] == {"x_note": "n"}
    assert text["choices"][0]["token_ids"] == [1, 2]


def test_usage_comes_only_when_asked_for() -> None:
    assert all("usage" not in chunk for chunk in chunks_of(completion()))
    last = chunks_of(completion(), include_usage=True)[-1]
    assert last["choices"] == []
    assert last["usage"]["prompt_tokens"] == 40
    without = completion()
    del without["usage"]
    assert chunks_of(without, include_usage=True)[-1]["choices"]


def test_an_empty_answer_still_has_a_beginning_and_an_end() -> None:
    body = completion(None, "")
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks_of(body)] == [None, "stop"]
