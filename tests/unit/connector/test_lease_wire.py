"""What goes between P and D is the same on both sides, and nothing else is taken."""

import base64
import json
from array import array
from typing import Any

import pytest

from disaggpair_bed.fakes.rawhttp import BLOCK_SIZE, grant
from disaggpair_connector import wire
from disaggpair_connector.book import LeaseBook
from disaggpair_connector.digest import CHUNK_TOKENS, DIGEST_BYTES
from disaggpair_connector.wire import Malformed


def book() -> LeaseBook:
    return LeaseBook(epoch="e", ttl_s=100, claim_s=10, read_s=20)


def an_answer(**changes: Any) -> dict[str, Any]:
    lease = grant(book(), "a", tokens=600)
    encoded = wire.encode_read(lease, block_size=BLOCK_SIZE, deadline_s=20.0)
    return {**json.loads(encoded), **changes}


def decoded(value: Any) -> wire.ReadAnswer:
    return wire.decode_read(json.dumps(value).encode())


def test_p_gets_what_d_holds() -> None:
    lease = grant(book(), "a", tokens=600)
    answer = wire.decode_read(wire.encode_read(lease, block_size=BLOCK_SIZE, deadline_s=20))
    assert answer.digests == lease.digests
    assert answer.block_ids == tuple(map(tuple, lease.block_ids))
    assert (answer.block_size, answer.divisible, answer.deadline_s) == (BLOCK_SIZE, True, 20.0)
    assert answer.peer.params() == {
        "remote_engine_id": "d-engine",
        "remote_request_id": "request-of-a",
        "remote_host": "10.0.0.9",
        "remote_port": 5600,
        "tp_size": 1,
    }


def test_the_answer_does_not_say_whose_conversation_it_is() -> None:
    lease = grant(book(), "a", conversation="who")
    assert b"who" not in wire.encode_read(lease, block_size=BLOCK_SIZE, deadline_s=20)


def test_the_answer_brings_the_readers_token_and_shows_it_to_nobody() -> None:
    found = book()
    lease = found.read("a", grant(found, "a").token)
    answer = wire.decode_read(wire.encode_read(lease, block_size=BLOCK_SIZE, deadline_s=20))
    assert answer.token == lease.token
    assert answer.token not in repr(answer)


def test_groups_of_different_lengths_are_taken_when_they_cannot_be_cut() -> None:
    answer = decoded(an_answer(divisible=False, block_ids=[[1, 2], [], [7]]))
    assert answer.block_ids == ((1, 2), (), (7,))


FULL = base64.b64encode(bytes(2 * DIGEST_BYTES)).decode()

WRONG: list[dict[str, Any]] = [
    {"peer": None},
    {"peer": {}},
    {"peer": {"remote_engine_id": "e", "remote_request_id": "r", "remote_host": "h"}},
    {"tokens": 0},
    {"tokens": -1},
    {"tokens": 600.0},
    {"tokens": True},
    {"tokens": "600"},
    {"tokens": 10**30},
    {"tokens": 512},  # with a tail
    {"tokens": 800},  # with digests of fewer
    {"chunk": CHUNK_TOKENS * 2},
    {"chunk": None},
    {"chunks": ""},
    {"chunks": FULL + "AAAA"},
    {"chunks": "*" * len(FULL)},
    {"chunks": FULL + "\n"},
    {"chunks": "é"},
    {"chunks": 5},
    {"tail": ""},
    {"tail": "00"},
    {"tail": "zz" * DIGEST_BYTES},
    {"tail": "é" * 2 * DIGEST_BYTES},
    {"tail": None},
    {"block_ids": []},
    {"block_ids": [[]]},
    {"block_ids": [1, 2]},
    {"block_ids": {"0": [1]}},
    {"block_ids": "11"},
    {"block_ids": [list(range(37))]},  # 600 tokens need 38
    {"block_ids": [list(range(38)), list(range(37))]},
    {"block_ids": [[*range(37), -1]]},
    {"block_ids": [[*range(37), 2**31]]},
    {"block_ids": [[*range(37), 10**400]]},
    {"block_ids": [[*range(37), 1.0]]},
    {"block_ids": [[*range(37), True]]},
    {"block_ids": [[*range(37), None]]},
    {"block_ids": [[*range(37), [1]]]},
    {"block_ids": [list(range(38))] * 257},
    {"block_size": 0},
    {"block_size": None},
    {"block_size": 1},  # needs 600 blocks
    {"divisible": 1},
    {"divisible": None},
    {"deadline_s": 0},
    {"deadline_s": -1.0},
    {"deadline_s": True},
    {"deadline_s": "20"},
    {"deadline_s": None},
    {"deadline_s": 1e9},
    {"deadline_s": 10**400},
    {"token": ""},
    {"token": "a b"},
    {"token": 5},
]


@pytest.mark.parametrize("change", WRONG, ids=lambda change: str(change)[:40])
def test_one_wrong_part_makes_the_whole_answer_malformed(change: dict[str, Any]) -> None:
    decoded(an_answer())
    with pytest.raises(Malformed):
        decoded(an_answer(**change))


@pytest.mark.parametrize("key", sorted(an_answer()))
def test_no_part_of_the_answer_may_be_missing(key: str) -> None:
    answer = an_answer()
    del answer[key]
    with pytest.raises(Malformed):
        decoded(answer)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_deadline_that_is_no_time_is_malformed(number: str) -> None:
    text = json.dumps(an_answer()).replace('"deadline_s": 20.0', f'"deadline_s": {number}')
    assert number in text
    with pytest.raises(Malformed):
        wire.decode_read(text.encode())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b'{"a":1}x',
        b"\xff",
        b"[" * 100_000,
        b"\xef\xbb\xbf{}",
        b"1" * 9999,
    ],
    ids=lambda body: repr(body[:12]),
)
def test_what_is_no_object_is_malformed(body: bytes) -> None:
    with pytest.raises(Malformed):
        wire.decode_read(body)
    with pytest.raises(Malformed):
        wire.decode_token(body)
    with pytest.raises(Malformed):
        wire.decode_purpose(body)


def test_what_is_longer_than_the_limit_is_not_even_read() -> None:
    with pytest.raises(Malformed, match="more than"):
        wire.decode_read(b" " * (wire.MAX_ANSWER_BYTES + 1))
    with pytest.raises(Malformed, match="more than"):
        wire.decode_token(b" " * (wire.MAX_BODY_BYTES + 1))


def test_more_blocks_than_any_engine_has_are_malformed() -> None:
    with pytest.raises(Malformed, match="blocks"):
        decoded(an_answer(block_ids=[[1] * (wire.MAX_BLOCKS + 1)]))


def test_the_largest_answer_that_can_be_told_fits_its_limit() -> None:
    lease = grant(book(), "a", tokens=2**20)
    lease.block_ids = (array("I", range(10**6, 10**6 + wire.MAX_BLOCKS)),)
    encoded = wire.encode_read(lease, block_size=BLOCK_SIZE, deadline_s=20)
    assert len(wire.decode_read(encoded).block_ids[0]) == wire.MAX_BLOCKS


@pytest.mark.parametrize("token", ["", " ", "a b", "a\n", "é", "a" * 257, 5, None, ["a"]])
def test_a_token_is_printable_and_short(token: Any) -> None:
    with pytest.raises(Malformed):
        wire.decode_token(json.dumps({"token": token}).encode())


def test_a_token_arrives_as_it_was_sent() -> None:
    assert wire.decode_token(wire.encode_token('a"b\\c')) == 'a"b\\c'


@pytest.mark.parametrize("purpose", ["", "reads", None, 1, ["read"], {}])
def test_a_claim_says_what_for(purpose: Any) -> None:
    assert wire.decode_purpose(b'{"for":"read"}') == "read"
    assert wire.decode_purpose(b'{"for":"direct"}') == "direct"
    with pytest.raises(Malformed):
        wire.decode_purpose(json.dumps({"for": purpose}).encode())


def test_the_errors_name_no_value() -> None:
    with pytest.raises(Malformed) as caught:
        wire.decode_token(b'{"token": "secret with spaces"')
    assert caught.value.__cause__ is None
    assert "secret" not in str(caught.value)
