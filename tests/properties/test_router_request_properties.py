"""Whatever a client sends as a body, it is read or refused, and never steers a transfer."""

import contextlib
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from disaggpair_router.conversation import Keys
from disaggpair_router.door import Door
from disaggpair_router.errors import RouterError
from disaggpair_router.kv import (
    TRANSFER_KEYS,
    Api,
    InvalidParams,
    checked_handle,
    checked_prefill_params,
    decode_body,
    prefill_body,
)
from disaggpair_router.request import PATHS, RequestReader, TurnRequest
from disaggpair_router.tenants import Tenants

KEYS = Keys(b"a secret of this test")
APIS = st.sampled_from(list(PATHS))

_WORDS = """
model messages prompt input stream stream_options n tools tool_choice conversation_id cache_salt
kv_transfer_params ec_transfer_params vllm_xargs extra_body max_tokens stop role content type text
system previous_response_id instructions store metadata echo best_of include_reasoning tool_calls
"""
_NAMES = st.sampled_from(_WORDS.split())
_LEAVES: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**60), 2**60),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=12),
    st.sampled_from(["user", "assistant", "system", "text", "image_url", "auto", "required"]),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(_NAMES, st.text(max_size=6)), inner, max_size=5),
    ),
    max_leaves=25,
)
BODIES = st.dictionaries(st.one_of(_NAMES, st.text(max_size=6)), VALUES, max_size=8)
_CHATS = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "tool", "system", ""]), "content": VALUES},
        optional={"tool_calls": VALUES, "reasoning": VALUES, "name": VALUES},
    ),
    max_size=5,
)


def reader(*, verified: bool) -> RequestReader:
    return RequestReader(
        ["x-conversation-id"],
        keys=KEYS,
        bidirectional=True,
        verified_reads=verified,
        finds_untold=verified,
        way_header="x-way",
    )


def read(
    api: Api, raw: bytes, headers: dict[str, str] | None = None, *, verified: bool = True
) -> TurnRequest | None:
    """The request; None when it is refused, which is the client's fault and says why."""
    refused = None
    try:
        return reader(verified=verified).read(api, raw, headers or {}, "id")
    except RouterError as error:
        refused = error
    assert 400 <= refused.status < 500
    assert refused.message
    return None


def steers(value: object) -> bool:
    """Whether there is a member that vLLM takes for transfer parameters, where it looks."""
    if not isinstance(value, dict):
        return False
    if TRANSFER_KEYS & value.keys():
        return True
    nested = (value.get(key) for key in ("vllm_xargs", "extra_body", "extra_args"))
    return any(map(_anywhere, nested))


def _anywhere(value: object) -> bool:
    if isinstance(value, dict):
        return bool(TRANSFER_KEYS & value.keys()) or any(map(_anywhere, value.values()))
    return isinstance(value, list) and any(map(_anywhere, value))


@given(APIS, BODIES, st.booleans())
def test_h75_a_body_of_any_shape_is_read_or_refused(
    api: Api, body: dict[str, Any], verified: bool
) -> None:
    request = read(api, orjson.dumps(body), verified=verified)
    if request is None:
        return
    assert not steers(request.body)
    for leg in (prefill_body(api, request.body), decode_body(request.body, None)):
        sent = orjson.loads(orjson.dumps(leg))
        sent.pop("kv_transfer_params", None)
        assert not steers(sent)


@given(APIS, _CHATS, BODIES)
def test_a_chat_of_any_messages_is_read_or_refused(
    api: Api, messages: list[Any], more: dict[str, Any]
) -> None:
    for name in ("messages", "input"):
        request = read(api, orjson.dumps({**more, name: messages}))
        if request is not None and request.history is not None:
            assert len(request.history.prompt().digest) in (0, 32)
            assert all(len(digest) == 32 for digest in request.history.digests())


@given(APIS, st.binary(max_size=60))
def test_a_body_of_any_bytes_is_read_or_refused(api: Api, raw: bytes) -> None:
    assert read(api, raw) is None or isinstance(orjson.loads(raw), dict)


@given(APIS, BODIES, st.binary(max_size=3), st.integers(0, 400))
def test_a_body_that_was_damaged_is_read_or_refused(
    api: Api, body: dict[str, Any], damage: bytes, place: int
) -> None:
    raw = orjson.dumps(body)
    at = place % (len(raw) + 1)
    read(api, raw[:at] + damage + raw[at + 1 :])


@pytest.mark.parametrize("api", list(PATHS))
@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'{"messages":[', b'{"vllm_xargs":{"b":'])
def test_a_body_that_is_nested_without_end_is_refused(api: Api, opening: bytes) -> None:
    assert read(api, opening * 100_000) is None


@pytest.mark.parametrize("api", list(PATHS))
@pytest.mark.parametrize("depth", [200, 254, 255, 800, 1_024])
def test_a_body_that_is_nested_deeply_is_read_or_refused(api: Api, depth: int) -> None:
    for name in (b"messages", b"input", b"prompt", b"tools", b"vllm_xargs"):
        read(api, b'{"' + name + b'":' + b"[" * depth + b"]" * depth + b"}")


@given(APIS, BODIES, st.text(max_size=40), st.text(max_size=10))
def test_headers_of_any_text_are_read_or_refused(
    api: Api, body: dict[str, Any], conversation: str, way: str
) -> None:
    headers = {"x-conversation-id": conversation, "x-way": way}
    request = read(api, orjson.dumps(body), headers)
    if request is not None:
        assert len(request.conversation.key) == 16
        assert "x-conversation-id" not in request.headers


@given(APIS, BODIES)
def test_the_same_body_has_the_same_scope_and_history_in_any_order(
    api: Api, body: dict[str, Any]
) -> None:
    body.pop("conversation_id", None)
    one, other = (
        read(api, orjson.dumps(body)),
        read(api, orjson.dumps(dict(reversed(body.items())))),
    )
    assert (one is None) == (other is None)
    if one is None or other is None:
        return
    assert one.scope == other.scope
    assert (one.history is None) == (other.history is None)
    if one.history is not None and other.history is not None:
        assert one.history.prompt() == other.history.prompt()


@given(
    st.dictionaries(
        st.sampled_from(["Authorization", "X-Api-Key", "X-Tenant", "Other"]), st.text(max_size=30)
    ),
    st.text(max_size=20),
    st.sampled_from(["", "key"]),
)
def test_h86_any_headers_make_a_caller_or_a_refusal(
    headers: dict[str, str], peer: str, engine_key: str
) -> None:
    for tenants in (Tenants(), Tenants(digests={}), Tenants(header="X-Tenant")):
        status = 200
        try:
            caller = Door(tenants, KEYS, engine_key=engine_key).caller(headers, peer)
        except RouterError as error:
            status = error.status
        else:
            assert tenants.is_open
            assert len(caller.owner) == 16
        assert status in (200, 400, 401, 403)


@given(VALUES)
def test_h27_params_of_any_shape_are_taken_or_refused(value: Any) -> None:
    for check in (checked_handle, checked_prefill_params):
        with contextlib.suppress(InvalidParams):
            check(value)
