"""The worker half with vLLM's own below it, and what both halves report for /metrics."""

from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import REGISTRY
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorLogging,
    KVConnectorProm,
)

from disaggpair_connector import tally
from disaggpair_connector.metrics import PairStats
from disaggpair_connector.prefill import FREED_REQUESTS
from disaggpair_connector.reads import READ_DEADLINES
from toypair.clock import CLOCK
from toypair.engine import Shape
from toypair.model import answer
from toypair.pair import FIRST, Pair, a_pair
from toypair.transport import FABRIC

PROMPT = list(range(10, 31))
MORE = [3, 1, 4, 1, 5]


def test_both_halves_are_in_vllms_places() -> None:
    with a_pair() as pair:
        for engine in (pair.p, pair.d):
            assert type(engine.worker).__name__ == "PairWorker"
            assert type(engine.half).__name__.endswith(
                "Prefill" if engine.role == "prefill" else "Decode"
            )


def test_the_handshake_compares_the_settings_of_both_roles() -> None:
    with a_pair() as pair:
        assert pair.p.worker.compat_hash == pair.d.worker.compat_hash
        assert pair.p.worker.compat_hash.endswith("+disaggpair/1,bidirectional=on,chunk=256")
        said = pair.p.worker.xfer_handshake_metadata.compatibility_hash
        assert said == pair.p.worker.compat_hash


def test_roles_that_differ_in_their_settings_do_not_read_each_other() -> None:
    pair = Pair(Shape(bidirectional=False), have_met=False)
    future = pair.d.worker._ensure_handshake(
        pair.p.half.engine_id, "127.0.0.1", pair.p.port, tp_size=1
    )
    assert "compatibility hash mismatch" in str(future.exception(timeout=30))
    offer = pair.prefill(PROMPT).params
    name = pair.d.add(PROMPT, offer, tokens=4)
    for _ in range(5):
        pair.d.step()
        pair.d.settle_handshakes()
    pair.d.run(name)
    assert pair.d.outcomes[name].tokens == answer(PROMPT, 4)
    assert FABRIC.done == []
    pair.end()
    pair.close()


def test_a_lease_that_is_given_back_frees_ps_request_at_once() -> None:
    with a_pair() as pair:
        pair.prefill(PROMPT)
        (lease,) = pair.p.leases.values()
        pair.p.book.release(lease.id)
        pair.p.step()
        pair.p.step()
        assert pair.p.scheduler.requests == {}
        assert pair.p.worker._freed == set()


def test_a_lease_that_nobody_takes_frees_ps_request_before_vllms_own_does() -> None:
    with a_pair() as pair:
        pair.prefill(PROMPT)
        CLOCK.advance(20.5)  # of vLLM's 30
        pair.p.step()
        pair.p.step()
        assert pair.p.scheduler.requests == {}


def test_the_metadata_of_a_step_is_of_its_own_reads() -> None:
    with a_pair() as pair:
        held, handle = pair.conversation(PROMPT, tokens=12)
        pair.settle()
        pair.p.scheduler.reset_prefix_cache()
        seen: list[Any] = []
        connector = pair.p.core.model_executor.connector
        bind = connector.bind_connector_metadata

        def look(metadata: Any) -> None:
            seen.append((getattr(metadata, READ_DEADLINES), getattr(metadata, FREED_REQUESTS)))
            bind(metadata)

        connector.bind_connector_metadata = look
        name = pair.p.add(held + MORE, handle)
        pair.p.run(name)
        assert [len(deadlines) for deadlines, _ in seen] == [1] + [0] * (len(seen) - 1)
        assert 29.0 < seen[0][0][name] <= 30.0


# Statistics.


def test_what_a_worker_and_a_half_report_is_added_up() -> None:
    worker, half = PairStats(), PairStats()
    worker.record_failed_transfer()
    half.add({tally.key(tally.VERIFIED): [5.0], tally.key(tally.REFUSED, "late"): [1.0]})
    assert not half.is_empty()
    both = worker.aggregate(half)
    assert both.data["num_failed_transfers"] == [1]
    assert both.data[tally.key(tally.VERIFIED)] == [5.0]


def test_a_report_without_counts_is_empty() -> None:
    stats = PairStats()
    assert stats.is_empty()
    stats.add({tally.key(tally.VERIFIED): [1.0]})
    taken = stats.clone_and_reset()
    assert stats.is_empty()
    assert not taken.is_empty()


def test_a_report_comes_out_of_another_process_as_it_went_in() -> None:
    with a_pair() as pair:
        held, handle = pair.conversation(PROMPT, tokens=12)
        pair.prefill(held + MORE, handle)
        connector = type(pair.p.scheduler.connector)
        assert pair.p.reports
        for report in pair.p.reports:
            assert connector.build_kv_connector_stats(report).data == report
        assert connector.build_kv_connector_stats().is_empty()


@pytest.fixture(scope="module")
def served() -> Iterator[Any]:
    """vLLM's own holder of a connector's metrics, as /metrics has it."""
    with a_pair() as pair:
        yield KVConnectorProm(pair.p.config, ["model_name", "engine"], {0: ["m", "0"]})


def value(name: str, **labels: str) -> float:
    found = REGISTRY.get_sample_value(name, {"model_name": "m", "engine": "0", **labels})
    return 0.0 if found is None else found


def test_what_a_pair_does_is_served(served: Any) -> None:
    with a_pair(Shape(threshold=8)) as pair:
        held, handle = pair.conversation(PROMPT, tokens=12)
        pair.turn(held + MORE, handle)
        pair.prefill(PROMPT, {**FIRST, "remote_block_ids": [[1]]})
        pair.decode([1], None)
        CLOCK.advance(10.0)
        pair.d.book.reset()
        pair.decode([1], None)
        verified = 0
        for engine in (pair.p, pair.d):
            for report in engine.reports:
                served.observe(report)
                verified += sum(report[tally.key(tally.VERIFIED)])
        assert value("disaggpair:verified_tokens_total") == verified > 0
        assert value("disaggpair:refused_reads_total", reason="no_lease") == 1
        assert value("disaggpair:leases_ended_total", reason="read") == 3
        assert value("disaggpair:leases_ended_total", reason="reset") == 1
        assert value("disaggpair:leases", state="granted") == 0
        assert value("disaggpair:lease_block_seconds_total") > 50  # 8 blocks, 10 s
        assert value("disaggpair:digest_seconds_count") > 4
        assert value("vllm:nixl_bytes_transferred_count") == 3


def test_the_log_of_an_interval_takes_every_report() -> None:
    with a_pair() as pair:
        log = KVConnectorLogging(pair.p.config.kv_transfer_config)
        held, handle = pair.conversation(PROMPT, tokens=12)
        pair.prefill(held + MORE, handle)
        for report in pair.p.reports:
            log.observe(report)
        lines: list[str] = []
        log.log(lambda text, *values: lines.append(text % values))
        assert "Num successful transfers=1" in lines[0]
