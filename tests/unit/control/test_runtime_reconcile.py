"""The whole reconcile on the cluster in memory: parse, observe, plan, apply, status."""

from typing import Any

import pytest

from disaggpair_bed.builders import FACTS, engine_pod, merged, node, owner, pair, raw_pair
from disaggpair_bed.fakes.cluster import FakeCluster
from disaggpair_operator.cluster import Conflict, Forbidden, Rejected, Unavailable
from disaggpair_operator.errors import Incomplete
from disaggpair_operator.keys import Key
from disaggpair_operator.model import Object, Ref
from disaggpair_operator.ownership import ref_of
from disaggpair_operator.plan import desired
from disaggpair_operator.reconcile import REFUSED_S, WAITING_S, Reconciler

KEY = Key("default", "chat")
FOREIGN = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "chat-router", "namespace": "default"},
    "data": {"theirs": "yes"},
}


class Bench:
    """A reconciler, its cluster, and a clock that stands still until it is set."""

    def __init__(self, raw: Object | None = None) -> None:
        self.now = "2026-11-30T05:00:00Z"
        self.cluster = FakeCluster()
        if raw is not None:
            self.cluster.put(raw)
        self.reconciler = Reconciler(self.cluster, FACTS, lambda: self.now)

    async def reconcile(self) -> float | None:
        return await self.reconciler.reconcile(KEY)

    def pair(self) -> Object:
        found = self.cluster.take(KEY.ref)
        assert found is not None
        return found

    def condition(self, type_: str) -> dict[str, Any]:
        found: dict[str, Any] = next(
            c for c in self.pair()["status"]["conditions"] if c["type"] == type_
        )
        return found

    def children(self) -> set[Ref]:
        return {ref for ref in self.cluster.refs() if ref != KEY.ref}


def planned_refs() -> set[Ref]:
    plan = desired(pair(), owner(), FACTS)
    return {ref_of(obj) for obj in (*plan.objects, *(secret.obj for secret in plan.secrets))}


async def test_a_new_pair_gets_all_children_and_a_status_in_one_reconcile() -> None:
    bench = Bench(raw_pair())
    assert await bench.reconcile() is None
    assert bench.children() == planned_refs()
    assert bench.pair()["status"]["observedGeneration"] == 1
    assert bench.condition("Accepted")["status"] == "True"


async def test_a_second_reconcile_leaves_every_object_as_it_is() -> None:
    bench = Bench(raw_pair())
    await bench.reconcile()
    await bench.reconcile()
    before = {ref: bench.cluster.take(ref) for ref in bench.cluster.refs()}
    bench.now = "2026-11-30T06:00:00Z"
    bench.cluster.calls.clear()
    await bench.reconcile()
    assert {ref: bench.cluster.take(ref) for ref in bench.cluster.refs()} == before
    assert not [call for call in bench.cluster.calls if call.subresource == "status"]


async def test_only_the_status_of_the_users_object_is_written() -> None:
    bench = Bench(raw_pair())
    before = bench.pair()
    await bench.reconcile()
    writes = [call for call in bench.cluster.writes() if call.kind == "DisaggPair"]
    assert {call.subresource for call in writes} == {"status"}
    after = bench.pair()
    assert (after["spec"], after["metadata"]["generation"]) == (before["spec"], 1)


async def test_a_pair_that_is_gone_asks_for_nothing() -> None:
    bench = Bench()
    assert await bench.reconcile() is None
    assert bench.cluster.writes() == []


async def test_nothing_is_written_for_a_pair_that_is_being_deleted() -> None:
    bench = Bench(raw_pair())
    await bench.reconcile()
    victim = next(iter(bench.children()))
    bench.cluster.mark_deleted(KEY.ref)
    bench.cluster.remove(victim)
    bench.cluster.calls.clear()
    assert await bench.reconcile() is None
    assert bench.cluster.writes() == []


async def test_a_deleted_child_comes_back() -> None:
    bench = Bench(raw_pair())
    await bench.reconcile()
    for victim in planned_refs():
        bench.cluster.remove(victim)
        await bench.reconcile()
        assert bench.cluster.take(victim) is not None


async def test_a_child_of_an_earlier_pair_of_this_name_is_waited_out() -> None:
    bench = Bench(raw_pair())
    await bench.reconcile()
    left = Ref("v1", "ConfigMap", "default", "chat-router")
    found = bench.cluster.take(left)
    assert found is not None
    bench.cluster.remove(KEY.ref)
    bench.cluster.put(raw_pair())
    bench.cluster.put({**found, "metadata": {**found["metadata"], "uid": None}})
    with pytest.raises(Incomplete):
        await bench.reconcile()
    bench.cluster.remove(left)
    assert await bench.reconcile() is None
    assert bench.children() == planned_refs()


async def test_a_wrong_spec_is_said_in_accepted_and_not_tried_again() -> None:
    bench = Bench(raw_pair({"fabric": {"type": "Carrier pigeons"}}))
    assert await bench.reconcile() is None
    accepted = bench.condition("Accepted")
    assert accepted["status"] == "False"
    assert "spec.fabric.type" in accepted["message"]
    assert bench.children() == set()


async def test_an_engine_that_cannot_do_it_is_said_in_accepted() -> None:
    bench = Bench(raw_pair({"engine": {"image": "example/vllm:v0.1.0"}}))
    assert await bench.reconcile() is None
    assert bench.condition("Accepted")["status"] == "False"
    assert "0.1" in bench.condition("Accepted")["message"]


async def test_a_wrong_edit_leaves_the_running_children_alone() -> None:
    bench = Bench(raw_pair())
    await bench.reconcile()
    before = {ref: bench.cluster.take(ref) for ref in bench.children()}
    bench.cluster.put(raw_pair({"fabric": {"type": "Carrier pigeons"}}))
    await bench.reconcile()
    assert {ref: bench.cluster.take(ref) for ref in bench.children()} == before
    assert bench.condition("Accepted")["observedGeneration"] == 2


async def test_an_edit_reaches_the_children() -> None:
    bench = Bench(raw_pair())
    await bench.reconcile()
    bench.cluster.put(raw_pair({"prefill": {"replicas": 3}}))
    await bench.reconcile()
    deployment = bench.cluster.take(Ref("apps/v1", "Deployment", "default", "chat-prefill"))
    assert deployment is not None
    assert deployment["spec"]["replicas"] == 3
    assert bench.pair()["status"]["observedGeneration"] == 2


async def test_somebody_elses_object_is_reported_and_looked_at_again() -> None:
    bench = Bench(raw_pair())
    bench.cluster.put(FOREIGN)
    assert await bench.reconcile() == REFUSED_S
    assert "ConfigMap default/chat-router" in str(bench.pair()["status"]["conditions"])
    bench.cluster.remove(ref_of(FOREIGN))
    assert await bench.reconcile() is None
    assert bench.children() == planned_refs()


async def test_a_conflict_is_retried_soon_and_the_status_written_all_the_same() -> None:
    bench = Bench(raw_pair())
    bench.cluster.fail("patch", "Service", Conflict("somebody was faster"))
    with pytest.raises(Incomplete):
        await bench.reconcile()
    assert bench.pair()["status"]["conditions"]
    assert await bench.reconcile() is None


@pytest.mark.parametrize("error", [Unavailable("no answer"), Forbidden("no right")])
async def test_what_time_may_mend_is_left_to_the_back_off_after_the_status(
    error: Unavailable | Forbidden,
) -> None:
    bench = Bench(raw_pair())
    bench.cluster.fail("patch", "Service", error)
    with pytest.raises(Incomplete, match=str(error)):
        await bench.reconcile()
    assert bench.pair()["status"]["conditions"]


async def test_an_object_the_api_server_refuses_is_looked_at_again() -> None:
    bench = Bench(raw_pair())
    bench.cluster.fail("patch", "Service", Rejected("spec.ports: too many"))
    assert await bench.reconcile() == REFUSED_S
    assert "spec.ports: too many" in str(bench.pair()["status"]["conditions"])


async def test_a_failed_read_stops_before_anything_is_written() -> None:
    bench = Bench(raw_pair())
    bench.cluster.fail("list", "Deployment", Unavailable("no answer"))
    with pytest.raises(Unavailable):
        await bench.reconcile()
    assert bench.cluster.writes() == []


async def test_a_right_to_read_that_is_missing_is_said_and_what_was_known_is_kept() -> None:
    bench = Bench(raw_pair())
    await bench.reconcile()
    before = bench.pair()["status"]
    bench.cluster.fail("list", "Pod", Forbidden("could not list Pod: no right"))
    with pytest.raises(Forbidden):
        await bench.reconcile()
    status = bench.pair()["status"]
    assert bench.condition("Ready")["status"] == "Unknown"
    assert bench.condition("Stalled")["reason"] == "Forbidden"
    assert "could not list Pod" in bench.condition("Stalled")["message"]
    assert status["roles"] == before["roles"]
    assert "Reconciling" not in [entry["type"] for entry in status["conditions"]]
    await bench.reconcile()
    assert "Stalled" not in [c["type"] for c in bench.pair()["status"]["conditions"]]


async def test_a_failed_status_write_is_left_to_the_back_off() -> None:
    bench = Bench(raw_pair())
    bench.cluster.fail("patch", "DisaggPair", Conflict("somebody was faster"))
    with pytest.raises(Conflict):
        await bench.reconcile()
    await bench.reconcile()
    assert bench.pair()["status"]["conditions"]


async def test_a_pair_whose_pod_waits_for_a_node_is_looked_at_again() -> None:
    bench = Bench(raw_pair())
    await bench.reconcile()
    bench.cluster.put(node("n1"))
    plan = desired(pair(), owner(), FACTS)
    bench.cluster.put(merged(engine_pod(plan, "prefill"), {"spec": {"nodeName": ""}}))
    assert await bench.reconcile() == WAITING_S


async def test_transition_times_stand_still_until_a_status_flips() -> None:
    bench = Bench(raw_pair())
    await bench.reconcile()
    first = bench.condition("Accepted")["lastTransitionTime"]
    bench.now = "2026-11-30T06:00:00Z"
    bench.cluster.put(raw_pair({"prefill": {"replicas": 3}}))
    await bench.reconcile()
    assert bench.condition("Accepted")["lastTransitionTime"] == first
    bench.cluster.put(raw_pair({"fabric": {"type": "Carrier pigeons"}}))
    await bench.reconcile()
    assert bench.condition("Accepted")["lastTransitionTime"] == bench.now


async def test_every_change_and_every_flip_is_one_log_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(raw_pair())
    with caplog.at_level("INFO", logger="disaggpair_operator"):
        await bench.reconcile()
    lines = [vars(record) for record in caplog.records]
    assert {line["pair"] for line in lines} == {"default/chat"}
    applied = [line["object"] for line in lines if line["msg"] == "applied"]
    assert sorted(applied) == sorted(map(str, planned_refs()))
    assert "Accepted" in [line["condition"] for line in lines if line["msg"] == "condition"]
    caplog.clear()
    await bench.reconcile()
    await bench.reconcile()
    caplog.clear()
    with caplog.at_level("INFO", logger="disaggpair_operator"):
        await bench.reconcile()
    assert caplog.records == []
