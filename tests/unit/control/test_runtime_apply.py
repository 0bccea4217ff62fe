"""Carrying out a plan on the cluster in memory."""

from typing import Any

import pytest

from disaggpair_bed.fakes.cluster import FakeCluster
from disaggpair_operator import names
from disaggpair_operator.apply import apply
from disaggpair_operator.cluster import (
    ClusterError,
    Conflict,
    Forbidden,
    Rejected,
    Unavailable,
)
from disaggpair_operator.model import Object, Observed, Owner, Plan, Ref
from disaggpair_operator.observe import observe

OWNER = Owner("chat", "default", "owner-uid", 1)


def config_map(name: str, uid: str = OWNER.uid, **data: str) -> dict[str, Any]:
    reference = {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "name": OWNER.name,
        "uid": uid,
        "controller": True,
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": OWNER.namespace,
            "labels": {names.PAIR_LABEL: OWNER.name},
            "ownerReferences": [reference] if uid else [],
        },
        "data": data,
    }


def ref(name: str) -> Ref:
    return Ref("v1", "ConfigMap", OWNER.namespace, name)


def plan(*objects: Object) -> Plan:
    return Plan(revision="r1", objects=objects)


async def test_missing_objects_are_created_in_the_order_of_the_plan() -> None:
    cluster = FakeCluster()
    applied = await apply(cluster, plan(config_map("b"), config_map("a")), Observed(OWNER))
    assert applied.changed == (ref("b"), ref("a"))
    assert not applied.failures
    assert cluster.refs() == [ref("b"), ref("a")]


async def test_applying_the_same_plan_again_changes_nothing() -> None:
    cluster = FakeCluster()
    wanted = plan(config_map("a", key="value"))
    await apply(cluster, wanted, Observed(OWNER))
    before = cluster.take(ref("a"))
    applied = await apply(cluster, wanted, await observe(cluster, OWNER))
    assert applied.changed == ()
    assert cluster.take(ref("a")) == before


async def test_a_child_that_somebody_edited_is_put_back() -> None:
    cluster = FakeCluster()
    wanted = plan(config_map("a", key="planned"))
    await apply(cluster, wanted, Observed(OWNER))
    cluster.put(config_map("a", key="edited"))
    applied = await apply(cluster, wanted, await observe(cluster, OWNER))
    assert applied.changed == (ref("a"),)
    restored = cluster.take(ref("a"))
    assert restored is not None
    assert restored["data"] == {"key": "planned"}


async def test_a_field_the_plan_no_longer_has_is_removed() -> None:
    cluster = FakeCluster()
    await apply(cluster, plan(config_map("a", old="1", kept="2")), Observed(OWNER))
    await apply(cluster, plan(config_map("a", kept="2")), await observe(cluster, OWNER))
    left = cluster.take(ref("a"))
    assert left is not None
    assert left["data"] == {"kept": "2"}


async def test_a_child_that_changed_since_it_was_read_is_written_all_the_same() -> None:
    cluster = FakeCluster()
    await apply(cluster, plan(config_map("a", x="1")), Observed(OWNER))
    observed = await observe(cluster, OWNER)
    changed = cluster.take(ref("a"))
    assert changed is not None
    cluster.put({**changed, "status": {"seen": True}})
    applied = await apply(cluster, plan(config_map("a", x="2")), observed)
    assert applied.changed == (ref("a"),)
    left = cluster.take(ref("a"))
    assert left is not None
    assert (left["data"], left["status"]) == ({"x": "2"}, {"seen": True})


async def test_a_child_that_was_orphaned_since_it_was_read_is_not_taken_back() -> None:
    cluster = FakeCluster()
    await apply(cluster, plan(config_map("a", x="1")), Observed(OWNER))
    observed = await observe(cluster, OWNER)
    orphan = cluster.take(ref("a"))
    assert orphan is not None
    orphan["metadata"]["ownerReferences"] = []
    cluster.put(orphan)
    applied = await apply(cluster, plan(config_map("a", x="2")), observed)
    assert [failure.reason for failure in applied.failures] == ["Conflict"]
    left = cluster.take(ref("a"))
    assert left is not None
    assert left["metadata"]["ownerReferences"] == []
    assert left["data"] == {"x": "1"}


async def test_a_child_that_never_holds_still_is_given_up_for_now() -> None:
    cluster = FakeCluster()
    await apply(cluster, plan(config_map("a", x="1")), Observed(OWNER))
    observed = await observe(cluster, OWNER)
    cluster.fail("patch", "ConfigMap", Conflict("somebody was faster"), times=3)
    applied = await apply(cluster, plan(config_map("a", x="2")), observed)
    (failure,) = applied.failures
    assert failure.reason == "Conflict"
    assert "changes faster than it can be written" in failure.message


@pytest.mark.parametrize("pair", ["", "another"])
async def test_a_same_named_object_that_is_not_ours_is_refused_and_named(pair: str) -> None:
    cluster = FakeCluster()
    theirs = config_map("a", uid="another-uid" if pair else "", theirs="yes")
    for reference in theirs["metadata"]["ownerReferences"]:
        reference["name"] = pair
    cluster.put(theirs)
    applied = await apply(cluster, plan(config_map("a", ours="yes")), await observe(cluster, OWNER))
    (failure,) = applied.failures
    assert (failure.ref, failure.reason) == (ref("a"), "NotOurs")
    assert "ConfigMap default/a exists and is not controlled by this pair" in failure.message
    untouched = cluster.take(ref("a"))
    assert untouched is not None
    assert untouched["data"] == {"theirs": "yes"}


async def test_a_child_that_lost_its_label_is_still_ours_and_gets_it_back() -> None:
    cluster = FakeCluster()
    bare = config_map("a")
    bare["metadata"]["labels"] = {}
    cluster.put(bare)
    applied = await apply(cluster, plan(config_map("a")), await observe(cluster, OWNER))
    assert applied.changed == (ref("a"),)
    assert not applied.failures


async def test_a_child_the_plan_lacks_is_deleted() -> None:
    cluster = FakeCluster()
    await apply(cluster, plan(config_map("a"), config_map("b")), Observed(OWNER))
    applied = await apply(cluster, plan(config_map("b")), await observe(cluster, OWNER))
    assert applied.pruned == (ref("a"),)
    assert cluster.refs() == [ref("b")]


async def test_a_child_on_its_way_out_is_not_deleted_again() -> None:
    cluster = FakeCluster()
    await apply(cluster, plan(config_map("a")), Observed(OWNER))
    cluster.mark_deleted(ref("a"))
    applied = await apply(cluster, plan(), await observe(cluster, OWNER))
    assert applied.pruned == ()
    assert [call.verb for call in cluster.writes()] == ["patch"]


async def test_nothing_is_written_while_the_owner_is_being_deleted() -> None:
    cluster = FakeCluster()
    await apply(cluster, plan(config_map("a")), Observed(OWNER))
    cluster.calls.clear()
    leaving = Owner("chat", "default", OWNER.uid, 1, deleting=True)
    seen = await observe(cluster, leaving)
    cluster.calls.clear()
    await apply(cluster, plan(config_map("b")), seen)
    assert cluster.calls == []


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Rejected("bad"), "Invalid"),
        (Forbidden("no"), "Forbidden"),
        (Conflict("late"), "Conflict"),
        (Unavailable("gone"), "Unavailable"),
    ],
)
async def test_a_failed_object_is_reported_and_does_not_stop_the_others(
    error: ClusterError, reason: str
) -> None:
    cluster = FakeCluster()
    cluster.fail("patch", "ConfigMap", error, name="a")
    applied = await apply(cluster, plan(config_map("a"), config_map("b")), Observed(OWNER))
    assert [(f.ref, f.reason, f.message) for f in applied.failures] == [
        (ref("a"), reason, str(error))
    ]
    assert applied.changed == (ref("b"),)


async def test_nothing_is_deleted_while_a_planned_object_fails() -> None:
    cluster = FakeCluster()
    await apply(cluster, plan(config_map("old")), Observed(OWNER))
    cluster.fail("patch", "ConfigMap", Rejected("bad"), name="new")
    applied = await apply(cluster, plan(config_map("new")), await observe(cluster, OWNER))
    assert applied.pruned == ()
    assert cluster.refs() == [ref("old")]


async def test_a_failed_deletion_is_reported_and_does_not_stop_the_others() -> None:
    cluster = FakeCluster()
    await apply(cluster, plan(config_map("a"), config_map("b")), Observed(OWNER))
    cluster.fail("delete", "ConfigMap", Forbidden("no"), name="a")
    applied = await apply(cluster, plan(), await observe(cluster, OWNER))
    assert [f.reason for f in applied.failures] == ["Forbidden"]
    assert applied.pruned == (ref("b"),)


async def test_an_object_that_took_the_name_after_the_look_is_left_alone() -> None:
    cluster = FakeCluster()
    await apply(cluster, plan(config_map("a"), config_map("b")), Observed(OWNER))
    seen = await observe(cluster, OWNER)
    for name in ("a", "b"):
        cluster.remove(ref(name))
        cluster.put(config_map(name, uid="", theirs="yes"))
    applied = await apply(cluster, plan(config_map("a")), seen)
    assert [(f.ref, f.reason) for f in applied.failures] == [(ref("a"), "Conflict")]
    applied = await apply(cluster, plan(), seen)
    assert [f.reason for f in applied.failures] == ["Conflict", "Conflict"]
    assert cluster.refs() == [ref("a"), ref("b")]
