"""The worker half: which reads count, what nobody will read, and what peers have to agree on."""

import importlib
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from disaggpair_connector.settings import parse_settings

Load = Callable[..., ModuleType]

PAST_S, FAR_S = -1.0, 1e6


@pytest.fixture
def worker(load: Load) -> Any:
    load()
    module = importlib.import_module("disaggpair_connector.worker")
    return module.PairWorker(None, "engine", None, settings=parse_settings({}))


def begin(worker: Any, request_id: str, *, within_s: float, handles: list[int]) -> None:
    """A read is under way."""
    worker.start_load_kv(SimpleNamespace(disaggpair_read_seconds={request_id: within_s}))
    worker._recving_metadata[request_id] = object()
    worker.transfers = {**getattr(worker, "transfers", {}), request_id: handles}


def pop(worker: Any) -> tuple[set[str], set[str]]:
    found: tuple[set[str], set[str]] = worker._pop_done_transfers(worker.transfers)
    for request_id in found[0]:
        worker._recving_metadata.pop(request_id, None)
    return found


# The handshake.


@pytest.mark.parametrize(
    ("extra", "suffix"),
    [
        ({}, "+disaggpair/1,bidirectional=off,chunk=256"),
        ({"bidirectional_kv_xfer": True}, "+disaggpair/1,bidirectional=on,chunk=256"),
    ],
)
def test_the_handshake_compares_what_both_roles_must_agree_on(
    load: Load, extra: dict[str, Any], suffix: str
) -> None:
    load()
    module = importlib.import_module("disaggpair_connector.worker")
    worker = module.PairWorker(None, "engine", None, settings=parse_settings(extra))
    worker.register_kv_caches({"layer": object()})
    assert worker.compat_hash == f"vllm{suffix}"
    assert worker.xfer_handshake_metadata.compatibility_hash == f"vllm{suffix}"


def test_caches_that_are_registered_twice_change_nothing(
    worker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.register_kv_caches({})
    assert worker.xfer_handshake_metadata is None
    once = worker.compat_hash
    # A release whose registration leaves the hash as it is.
    monkeypatch.setattr(type(worker).__mro__[1], "register_kv_caches", lambda self, caches: None)
    worker.register_kv_caches({})
    assert worker.compat_hash == once


# Reads.


def test_metadata_of_a_step_without_reads_begins_none(worker: Any) -> None:
    step = SimpleNamespace()
    worker.start_load_kv(step)
    assert worker.begun == [step]


def meta_of(engine_id: str, port: int) -> Any:
    return SimpleNamespace(remote=SimpleNamespace(engine_id=engine_id, host="10.0.0.4", port=port))


def test_a_read_that_cannot_be_begun_has_failed(worker: Any) -> None:
    worker.fault = AssertionError()
    worker._read_blocks_for_req("r", meta_of("one", 5600))
    assert worker._recv_failures == {"r"}
    worker.fault = None
    worker._read_blocks_for_req("s", meta_of("one", 5600))
    assert worker.read == ["s"]
    assert worker._recv_failures == {"r"}


def test_of_two_engines_with_one_id_the_one_that_was_met_is_read(worker: Any) -> None:
    worker._remote_agents["one"] = {}
    worker._engine_by_address["10.0.0.4", 5600] = "one"
    worker._read_blocks_for_req("r", meta_of("one", 5600))
    worker._read_blocks_for_req("s", meta_of("one", 5601))
    assert worker.read == ["r"]
    assert worker._recv_failures == {"s"}


def test_a_read_in_time_is_done(worker: Any) -> None:
    begin(worker, "r", within_s=FAR_S, handles=[1])
    assert pop(worker) == (set(), set())
    worker.arrived = {"r"}
    assert pop(worker) == ({"r"}, set())


def test_a_read_that_is_seen_to_end_after_its_time_has_failed(worker: Any) -> None:
    begin(worker, "r", within_s=PAST_S, handles=[1])
    worker.arrived = {"r"}
    assert pop(worker) == ({"r"}, {"r"})


def test_a_read_without_a_deadline_takes_its_time(worker: Any) -> None:
    worker.transfers = {"r": [1]}
    assert pop(worker) == (set(), set())
    worker.arrived = {"r"}
    assert pop(worker) == ({"r"}, set())


def test_a_deadline_moves_when_the_scheduler_says_so(worker: Any) -> None:
    begin(worker, "r", within_s=PAST_S, handles=[1])
    begin(worker, "r", within_s=FAR_S, handles=[1])
    worker.arrived = {"r"}
    assert pop(worker) == ({"r"}, set())


def test_a_read_that_has_not_ended_is_left_to_its_transport_and_fails_when_it_ends_late(
    worker: Any,
) -> None:
    begin(worker, "hung", within_s=PAST_S, handles=[1, 2])
    assert pop(worker) == (set(), set())
    assert worker.transfers == {"hung": [1, 2]}
    worker.arrived = {"hung"}
    assert pop(worker) == ({"hung"}, {"hung"})
    assert worker._read_deadlines == {}


def test_the_time_of_a_read_that_is_not_under_way_is_forgotten(worker: Any) -> None:
    begin(worker, "r", within_s=PAST_S, handles=[])
    worker.transfers = {}
    del worker._recving_metadata["r"]
    assert pop(worker) == (set(), set())
    assert worker._read_deadlines == {}


# What nobody will read.


def test_what_nobody_will_read_is_reported_as_sent_once(worker: Any) -> None:
    worker._reqs_to_send = {"a": FAR_S, "b": FAR_S}
    worker._reqs_to_process = {"a", "b"}
    worker.consumer_notification_counts_by_req = {"a": 1}
    worker.expected_consumer_notifications_by_req = {"a": 2}
    worker.notified = {"b"}
    worker.start_load_kv(SimpleNamespace(disaggpair_freed_requests={"a"}))
    assert worker._get_new_notifs() == {"a", "b"}
    assert worker._reqs_to_send == {"b": FAR_S}
    assert worker._reqs_to_process == {"b"}
    assert worker.consumer_notification_counts_by_req == {}
    assert worker.expected_consumer_notifications_by_req == {}
    worker.notified = set()
    assert worker._get_new_notifs() == set()


def test_what_the_engine_still_works_on_is_reported_when_it_is_done(worker: Any) -> None:
    worker._reqs_to_process = {"a"}
    worker.start_load_kv(SimpleNamespace(disaggpair_freed_requests={"a", "never heard of"}))
    assert worker._get_new_notifs() == set()
    worker._reqs_to_send = {"a": FAR_S, "never heard of": FAR_S}
    assert worker._get_new_notifs() == {"a"}
