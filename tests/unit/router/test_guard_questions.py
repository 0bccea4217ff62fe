"""What a check asks, and how it reads the answer."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from disaggpair_router.guard.questions import TOLD, can_be_asked, first_token, question
from disaggpair_router.kv import Api

BODY = {
    "model": "m",
    "messages": [{"role": "user", "content": "a"}],
    "stream": True,
    "stream_options": {"include_usage": True},
    "max_tokens": 100,
    "cache_salt": "the client's",
    "logprobs": False,
    "logprob_token_ids": [7],
    "temperature": 1.5,
    "stop": ["x"],
}


def test_a_question_is_the_turns_own_for_one_token_and_no_transfer() -> None:
    asked = question("chat", BODY)
    assert asked == {
        "model": "m",
        "messages": BODY["messages"],
        "stream": False,
        "max_tokens": 1,
        "max_completion_tokens": 1,
        "cache_salt": "the client's",
        "logprobs": True,
        "top_logprobs": TOLD,
        "return_tokens_as_token_ids": True,
        "temperature": 0,
    }


def test_with_a_salt_the_prompt_is_computed_from_nothing() -> None:
    assert question("completions", {"prompt": "a"}, salt="new") == {
        "prompt": "a",
        "stream": False,
        "max_tokens": 1,
        "logprobs": TOLD,
        "return_tokens_as_token_ids": True,
        "temperature": 0,
        "cache_salt": "new",
    }


def test_only_apis_that_tell_probabilities_are_asked() -> None:
    apis: dict[Api, bool] = {
        "chat": True,
        "completions": True,
        "responses": False,
        "messages": False,
    }
    assert {api: can_be_asked(api) for api in apis} == apis


def answer(logprobs: Any, **fields: Any) -> bytes:
    return orjson.dumps({"choices": [{"logprobs": logprobs}], **fields})


def test_probabilities_of_both_apis_are_read() -> None:
    tops = [{"token": "1", "logprob": -0.5}, {"token": "2", "logprob": None}]
    usage = {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 8}}
    chat = first_token("chat", answer({"content": [{"top_logprobs": tops}]}, usage=usage))
    assert chat is not None
    assert (chat.logprobs, chat.cached_tokens) == ({"1": -0.5}, 8)
    text = first_token("completions", answer({"top_logprobs": [{"1": -0.5}]}))
    assert text is not None
    assert (text.logprobs, text.cached_tokens) == ({"1": -0.5}, None)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{}",
        answer(None),
        answer({"content": []}),
        answer({"content": [{"top_logprobs": []}]}),
        answer({"content": [{"top_logprobs": [{"token": "1"}]}]}),
        answer({"content": [{"top_logprobs": [{"token": "1", "logprob": "x"}]}]}),
        answer({"top_logprobs": [None]}),
        answer({"top_logprobs": [7]}),
    ],
)
@pytest.mark.parametrize("api", ["chat", "completions"])
def test_an_answer_without_probabilities_says_nothing(api: Api, raw: bytes) -> None:
    assert first_token(api, raw) is None


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["choices", "logprobs", "content", "top_logprobs", "token", "logprob"]),
            inner,
            max_size=3,
        )
    ),
)


@given(_JSON, st.sampled_from(["chat", "completions"]))
def test_no_answer_breaks_a_check(value: Any, api: Api) -> None:
    first_token(api, orjson.dumps(value))
    first_token(api, orjson.dumps({"choices": [value]}))
    first_token(api, answer(value))
