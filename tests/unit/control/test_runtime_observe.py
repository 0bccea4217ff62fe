"""What one reconcile reads."""

import pytest

from disaggpair_bed.builders import FACTS, engine_pod, node, owner, pair
from disaggpair_bed.fakes.cluster import FakeCluster
from disaggpair_operator import kinds
from disaggpair_operator.cluster import Forbidden, Unavailable
from disaggpair_operator.model import Owner, Plan
from disaggpair_operator.observe import observe, waits_for_node
from disaggpair_operator.ownership import ref_of
from disaggpair_operator.plan import desired


def planned(of: Owner) -> Plan:
    return desired(pair(), of, FACTS)


async def test_children_of_the_owner_are_seen_and_those_of_others_are_not() -> None:
    cluster = FakeCluster()
    ours, earlier, other = owner(), owner(uid="u-0"), owner("another", uid="u-2")
    for obj in planned(ours).objects:
        cluster.put(obj)
    stranger = {**planned(earlier).objects[0]}
    stranger["metadata"] = {**stranger["metadata"], "name": "of-an-earlier-pair"}
    cluster.put(stranger)
    for obj in planned(other).objects:
        cluster.put(obj)
    seen = await observe(cluster, ours)
    assert {ref_of(child) for child in seen.children} == {ref_of(o) for o in planned(ours).objects}


async def test_a_label_alone_makes_no_child() -> None:
    cluster = FakeCluster()
    obj = {**planned(owner()).objects[0]}
    obj["metadata"] = {**obj["metadata"], "ownerReferences": []}
    cluster.put(obj)
    assert (await observe(cluster, owner())).children == ()


async def test_every_kind_the_plan_makes_is_read() -> None:
    made = {(obj["apiVersion"], obj["kind"]) for obj in planned(owner()).objects}
    assert made <= {(kind.api_version, kind.kind) for kind in kinds.CHILDREN}


async def test_nodes_are_read_only_while_a_pod_waits_for_one() -> None:
    cluster = FakeCluster()
    cluster.put(node("n1"))
    plan = planned(owner())
    pod = engine_pod(plan, "prefill", status={"phase": "Running"})
    cluster.put(pod)
    seen = await observe(cluster, owner())
    assert (len(seen.pods), seen.nodes) == (1, ())
    del pod["spec"]["nodeName"]
    pod["metadata"]["name"] = "waiting"
    pod["status"] = {"phase": "Pending"}
    cluster.put(pod)
    assert [n["metadata"]["name"] for n in (await observe(cluster, owner())).nodes] == ["n1"]


@pytest.mark.parametrize(
    ("spec", "status", "metadata", "waits"),
    [
        ({}, {}, {}, True),
        ({}, {"phase": "Pending"}, {}, True),
        ({"nodeName": "n1"}, {"phase": "Pending"}, {}, False),
        ({}, {"phase": "Failed"}, {}, False),
        ({}, {"phase": "Pending"}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}, False),
    ],
)
def test_a_pod_waits_until_it_is_placed_or_over(
    spec: dict[str, str], status: dict[str, str], metadata: dict[str, str], waits: bool
) -> None:
    assert waits_for_node({"metadata": metadata, "spec": spec, "status": status}) is waits


async def test_without_the_right_on_nodes_the_rest_is_still_seen() -> None:
    cluster = FakeCluster()
    pod = engine_pod(planned(owner()), "prefill")
    del pod["spec"]["nodeName"]
    cluster.put(pod)
    cluster.fail("list", "Node", Forbidden("no"))
    seen = await observe(cluster, owner())
    assert (len(seen.pods), seen.nodes) == (1, ())


async def test_a_failed_read_is_not_mistaken_for_an_empty_cluster() -> None:
    cluster = FakeCluster()
    cluster.fail("list", "Deployment", Unavailable("gone"))
    with pytest.raises(Unavailable):
        await observe(cluster, owner())
