"""Which node lacks what for a pod."""

from decimal import Decimal
from typing import Any

import pytest

from disaggpair_bed.builders import FACTS, engine_pod, node, owner, pair
from disaggpair_operator.api.quantity import amount
from disaggpair_operator.plan import desired
from disaggpair_operator.status.nodes import node_lacks, shortfalls

POD = engine_pod(desired(pair(), owner(), FACTS), "prefill")
GPU_TAINT = {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}
OWN_TAINT = {"key": "team", "value": "search", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("changes", "lacks"),
    [
        ({}, []),
        (
            {"metadata": {"labels": {"node.kubernetes.io/instance-type": "m7i.large"}}},
            [
                "has label node.kubernetes.io/instance-type that is m7i.large, wanted "
                "p5en.48xlarge or p5e.48xlarge or ml.p5en.48xlarge or ml.p5e.48xlarge"
            ],
        ),
        (
            {"status": {"allocatable": {"nvidia.com/gpu": "4"}}},
            ["offers 4 nvidia.com/gpu, wanted 8"],
        ),
        ({"spec": {"unschedulable": True}}, ["is cordoned"]),
        ({"spec": {"taints": [GPU_TAINT]}}, []),
        ({"spec": {"taints": [OWN_TAINT]}}, ["has taint team"]),
        ({"spec": {"taints": [{**OWN_TAINT, "effect": "PreferNoSchedule"}]}}, []),
        (
            {"spec": {"taints": [{**GPU_TAINT, "effect": "NoExecute"}]}},
            ["has taint nvidia.com/gpu"],
        ),
    ],
)
def test_a_node_lacks_labels_taints_and_devices(changes: dict[str, Any], lacks: list[str]) -> None:
    assert node_lacks(POD, node("n", **changes)) == lacks


def test_a_missing_label_and_a_missing_resource_are_named() -> None:
    bare = {"metadata": {"name": "n"}, "status": {}}
    text = shortfalls(POD, [bare])
    assert "n has label topology.kubernetes.io/zone that is not set, wanted us-east-2a" in text
    assert "offers 0 vpc.amazonaws.com/efa, wanted 16" in text


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"key": "team", "operator": "Equal", "value": "search"}, True),
        ({"key": "team", "operator": "Equal", "value": "ads"}, False),
        ({"operator": "Exists"}, True),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_a_toleration_is_read_as_kubernetes_does(
    toleration: dict[str, str], tolerated: bool
) -> None:
    pod = {**POD, "spec": {**POD["spec"], "tolerations": [toleration]}}
    assert (node_lacks(pod, node("n", spec={"taints": [OWN_TAINT]})) == []) is tolerated


def test_a_node_that_would_fit_is_taken() -> None:
    assert shortfalls(POD, [node("n")]) == "n fits but is taken"


def test_a_pod_without_demands_fits_everywhere() -> None:
    assert node_lacks({"spec": {"containers": [{}]}}, node("n")) == []


def test_a_large_cluster_is_cut_short() -> None:
    text = shortfalls(POD, [node(f"n{i}") for i in range(12)])
    assert text.endswith("and 4 more nodes")


def test_an_empty_cluster_is_said_to_be_empty() -> None:
    assert shortfalls(POD, []) == "the cluster has no node"


@pytest.mark.parametrize(
    ("text", "value"),
    [("8", Decimal(8)), ("500m", Decimal("0.5")), ("2Ti", Decimal(2**41)), ("1.5k", Decimal(1500))],
)
def test_quantities_are_numbers(text: str, value: Decimal) -> None:
    assert amount(text) == value


def test_what_is_no_quantity_is_refused() -> None:
    with pytest.raises(ValueError, match="'many' is not a quantity"):
        amount("many")
