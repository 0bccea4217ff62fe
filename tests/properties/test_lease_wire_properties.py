"""Whatever the other side sends is taken in full or refused, and never ends anything else."""

import json
from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import example, given
from hypothesis import strategies as st

from disaggpair_bed.fakes.rawhttp import BLOCK_SIZE, grant
from disaggpair_connector import wire
from disaggpair_connector.book import LeaseBook
from disaggpair_connector.listener_http import Head, Refused, Request, parse_head
from disaggpair_connector.reader_ticket import Question, is_host
from disaggpair_connector.wire import Malformed

T = TypeVar("T")

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=10,
)


def answer_of(tokens: int) -> dict[str, Any]:
    book = LeaseBook(epoch="e", ttl_s=100, claim_s=10, read_s=20)
    lease = grant(book, "a", tokens)
    found: dict[str, Any] = json.loads(
        wire.encode_read(lease, block_size=BLOCK_SIZE, deadline_s=20)
    )
    return found


def outcome(read: Callable[[], T]) -> tuple[T | None, Refused | None]:
    try:
        return read(), None
    except Refused as refused:
        return None, refused


KEYS = sorted(answer_of(1))


def is_sound(answer: wire.ReadAnswer) -> bool:
    needed = -(-answer.digests.tokens // answer.block_size)
    return (
        all(type(block) is int and 0 <= block < 2**31 for g in answer.block_ids for block in g)
        and 0 < answer.deadline_s <= wire.MAX_DEADLINE_S
        and 0 < answer.digests.tokens <= wire.MAX_TOKENS
        and (not answer.divisible or all(len(group) >= needed for group in answer.block_ids))
    )


@given(st.integers(1, 3000))
def test_every_lease_arrives_as_it_is(tokens: int) -> None:
    answer = wire.decode_read(json.dumps(answer_of(tokens)).encode())
    assert answer.digests.tokens == tokens
    assert is_sound(answer)


@given(st.sampled_from(KEYS), JSON)
@example("block_ids", [[True] * 38])
@example("deadline_s", float("nan"))
def test_one_part_of_anything_is_refused_or_sound(key: str, value: Any) -> None:
    try:
        answer = wire.decode_read(json.dumps({**answer_of(600), key: value}).encode())
    except Malformed:
        return
    assert is_sound(answer)


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_refused_or_sound(body: bytes) -> None:
    for decode in (wire.decode_read, wire.decode_token, wire.decode_purpose):
        try:
            decode(body)
        except Malformed:
            continue


@given(st.data())
def test_a_damaged_answer_is_refused_or_sound(data: st.DataObject) -> None:
    body = bytearray(json.dumps(answer_of(300)).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        answer = wire.decode_read(bytes(body))
    except Malformed:
        return
    assert is_sound(answer)


LINES = st.sampled_from(
    [
        b"host: d",
        b"Host: d",
        b"content-length: 5",
        b"content-length: +5",
        b"content-length: 99999999",
        b"transfer-encoding: chunked",
        b"connection: close",
        b"authorization: Bearer k",
        b" folded",
        b"no colon",
        b"a\nb: c",
        b"",
    ]
)


@given(
    st.binary(max_size=300)
    | st.lists(LINES | st.binary(max_size=20), max_size=8).map(
        lambda lines: b"\r\n".join([b"GET /leases?a=b HTTP/1.1", *lines])
    )
)
def test_any_head_is_refused_or_read(data: bytes) -> None:
    head, refused = outcome(lambda: parse_head(data))
    if refused is not None:
        assert refused.close
        assert 400 <= refused.status <= 505
        assert refused.answer().startswith(b"HTTP/1.1 ")
    if head is None:
        return
    assert 0 <= head.length <= wire.MAX_BODY_BYTES
    assert head.path.startswith("/")
    # One length and no line that another program could take for a second message.
    assert data.lower().count(b"content-length:") <= 1 or head.length >= 0
    assert b"\n" not in data.replace(b"\r\n", b"")


@given(st.text(max_size=40))
def test_any_query_is_refused_or_read(query: str) -> None:
    request = Request(Head("GET", "/", query, None, 0, False), b"")
    _, refused = outcome(request.parameters)
    assert refused is None or (refused.status, refused.close) == (400, False)


@given(JSON, JSON, JSON, JSON)
@example("127.0.0.1", 80, "a", "t")
@example("a\r\nx: y", 80, "a", "t")
def test_only_a_sound_question_becomes_a_request(
    host: Any, port: Any, lease: Any, token: Any
) -> None:
    question = Question(host, port, lease, token)
    if not question.is_sound():
        return
    head, _, body = question.request("read").partition(b"\r\n\r\n")
    assert len(head.split(b"\r\n")) == 4
    assert len(head.split(b"\r\n")[0].split(b" ")) == 3
    assert wire.decode_token(body) == token


@given(st.text(max_size=300))
@example("http://a")
@example("a/b")
@example("a@b")
@example("a:1")
@example("[::1]")
@example("::1%lo")
@example("a\n")
def test_a_host_has_nothing_of_a_url(host: str) -> None:
    if is_host(host):
        assert host.isascii()
        assert not set(host) & set(" /@?#[]%\\\r\n\t")
