from typing import Any

import pytest

from disaggpair_operator import names
from disaggpair_router import podview
from disaggpair_router.pick import Endpoint
from disaggpair_router.podview import endpoint_of


def pod(**changes: Any) -> dict[str, Any]:
    status = {
        "podIP": "10.0.0.7",
        "phase": "Running",
        "conditions": [{"type": "Scheduled"}, {"type": "Ready", "status": "True"}],
        "containerStatuses": [
            {"name": "sidecar"},
            {"name": "engine", "restartCount": 2, "containerID": "c://9"},
        ],
    }
    labels = {
        podview.ROLE_LABEL: "decode",
        podview.REVISION_LABEL: "r1",
        podview.ZONE_LABEL: "us-east-2a",
    }
    metadata = {"uid": "u-1", "labels": labels | changes.pop("labels", {})}
    return {
        "metadata": metadata | changes.pop("metadata", {}),
        "status": status | changes,
    }


def test_a_running_pod_is_an_endpoint() -> None:
    assert endpoint_of(pod(), 8000) == Endpoint(
        name="u-1",
        url="http://10.0.0.7:8000",
        role="decode",
        ready=True,
        incarnation="2 c://9",
        revision="r1",
        zone="us-east-2a",
    )


def test_h37_an_ipv6_address_is_put_into_brackets() -> None:
    endpoint = endpoint_of(pod(podIP="fd00::7"), 8000)
    assert endpoint is not None
    assert endpoint.url == "http://[fd00::7]:8000"


@pytest.mark.parametrize(
    "changes",
    [
        {"labels": {podview.ROLE_LABEL: "router"}},
        {"podIP": None},
        {"phase": "Failed"},
        {"phase": "Succeeded"},
        {"metadata": {"deletionTimestamp": "2026-11-30T00:00:00Z"}},
    ],
)
def test_h33_a_pod_that_cannot_serve_is_none(changes: dict[str, Any]) -> None:
    assert endpoint_of(pod(**changes), 8000) is None


@pytest.mark.parametrize("conditions", [None, [{"type": "Ready", "status": "False"}]])
def test_a_pod_that_is_not_ready_is_known_as_such(conditions: object) -> None:
    endpoint = endpoint_of(pod(conditions=conditions), 8000)
    assert endpoint is not None
    assert not endpoint.ready


def test_h29_a_restarted_container_is_another_incarnation() -> None:
    lives = {
        endpoint.incarnation
        for statuses in (
            None,
            [{"name": "engine"}],
            [{"name": "engine", "containerID": "c://1"}],
            [{"name": "engine", "containerID": "c://2", "restartCount": 1}],
        )
        if (endpoint := endpoint_of(pod(containerStatuses=statuses), 8000))
    }
    assert len(lives) == 4


def test_a_pod_without_labels_or_status_is_none() -> None:
    assert endpoint_of({"metadata": {"uid": "u"}}, 8000) is None


def test_the_labels_are_the_operators() -> None:
    assert podview.PAIR_LABEL == names.PAIR_LABEL
    assert podview.ROLE_LABEL == names.ROLE_LABEL
    assert podview.REVISION_LABEL == names.REVISION_LABEL
