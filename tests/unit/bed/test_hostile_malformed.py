"""The catalogue of malformed parameters."""

import json
from random import Random
from typing import Any

import pytest

from disaggpair_bed.hostile import malformed

HANDLE = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_block_ids": [[7, 8, 9]],
    "remote_engine_id": "d",
    "remote_request_id": "cmpl-1",
    "remote_host": "127.0.0.1",
    "remote_port": 5600,
    "remote_num_tokens": 80,
    "tp_size": 1,
    "disaggpair": {"lease": "l", "token": "t", "port": 5700},
}
CASES = [*malformed.TO_PREFILL.items(), *malformed.TO_DECODE.items()]


@pytest.mark.parametrize(("name", "change"), CASES, ids=[name for name, _ in CASES])
def test_a_case_changes_what_is_sent_and_not_what_was_given(name: str, change: Any) -> None:
    given = json.loads(json.dumps(HANDLE))
    changed = change(given)
    assert given == HANDLE
    assert changed != HANDLE
    json.dumps(changed)


def test_a_case_works_on_a_handle_without_our_part_or_blocks() -> None:
    for _, change in CASES:
        json.dumps(change({"do_remote_decode": True}))


def test_fuzzing_changes_something_nearly_always_and_never_the_given() -> None:
    given = json.loads(json.dumps(HANDLE))
    rng = Random(1)
    changed = [malformed.fuzzed(rng, given) for _ in range(200)]
    assert given == HANDLE
    assert sum(one != HANDLE for one in changed) > 190
    json.dumps(changed)


def test_the_same_seed_fuzzes_alike() -> None:
    one, other = (
        [malformed.fuzzed(rng, HANDLE) for _ in range(20)] for rng in (Random(5), Random(5))
    )
    assert one == other
