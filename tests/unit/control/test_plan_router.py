"""The router's pods: how many, how they are replaced, and how they end."""

from typing import Any

import pytest

from disaggpair_bed.builders import FACTS, owner, pair, planned
from disaggpair_operator.model import Object, Plan
from disaggpair_operator.plan import desired


def plan(changes: dict[str, Any] | None = None) -> Plan:
    return desired(pair(changes), owner(), FACTS)


def deployment(changes: dict[str, Any] | None = None) -> dict[str, Any]:
    spec: dict[str, Any] = planned(plan(changes), "Deployment", "router")["spec"]
    return spec


def budgets(of: Plan) -> dict[str, Object]:
    return {
        obj["metadata"]["name"]: obj for obj in of.objects if obj["kind"] == "PodDisruptionBudget"
    }


@pytest.mark.parametrize(
    ("replicas", "suspend", "pods"), [(1, False, 1), (3, False, 3), (3, True, 0)]
)
def test_there_are_as_many_as_asked_for(replicas: int, suspend: bool, pods: int) -> None:
    found = deployment({"router": {"replicas": replicas}, "suspend": suspend})
    assert found["replicas"] == pods


def test_a_new_one_serves_before_an_old_one_goes() -> None:
    for replicas in (1, 3):
        strategy = deployment({"router": {"replicas": replicas}})["strategy"]
        assert strategy["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_several_are_drained_from_their_nodes_one_at_a_time() -> None:
    several = budgets(plan({"router": {"replicas": 2}}))["chat-router"]
    assert several["spec"]["maxUnavailable"] == 1
    router = planned(plan(), "Deployment", "router")
    assert several["spec"]["selector"] == router["spec"]["selector"]
    assert set(budgets(plan())) == {"chat-prefill", "chat-decode"}


@pytest.mark.parametrize(("drain", "told"), [(0, 1.0), (60, 60.0), (3600, 3600.0)])
def test_the_grace_period_covers_the_pause_before_the_drain_the_drain_and_the_end(
    drain: int, told: float
) -> None:
    changes = {"rollout": {"drainSeconds": drain}}
    pod = deployment(changes)["template"]["spec"]
    (container,) = pod["containers"]
    pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    config = planned(plan(changes), "ConfigMap", "router")["data"]["router.json"]
    assert f'"drain_s": {told}' in config
    # The router releases its handles for at most 3 s and cuts what is left within half a second.
    assert pod["terminationGracePeriodSeconds"] >= pause + told + 5
