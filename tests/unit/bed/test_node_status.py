from typing import Any

import pytest

from disaggpair_bed.node.downward import Placement
from disaggpair_bed.node.spec import Container, Pod, parse_pod
from disaggpair_bed.node.status import (
    ContainerView,
    Running,
    State,
    Terminated,
    Waiting,
    build_status,
    view_before,
)

PLACE = Placement("n1", "127.11.0.2", "127.11.0.1", {}, "127.0.0.1", "6443")
NOW = "2026-01-01T00:01:00Z"
BEFORE = "2026-01-01T00:00:00Z"


def pod(policy: str = "Always", **changes: Any) -> Pod:
    return parse_pod(
        {
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "generation": 3}
            | changes.get("metadata", {}),
            "spec": {"restartPolicy": policy, "containers": [{"name": "c", "image": "i"}]}
            | changes.get("spec", {}),
            "status": changes.get("status", {}),
        }
    )


def view(state: State, name: str = "c", sidecar: bool = False, **fields: Any) -> ContainerView:
    return ContainerView(Container(name, "i", sidecar=sidecar), state, **fields)


def ended(code: int) -> Terminated:
    return Terminated(code, "Completed" if code == 0 else "Error", BEFORE, NOW)


RUNNING = Running(BEFORE)


def status(
    *main: ContainerView,
    init: tuple[ContainerView, ...] = (),
    of: Pod | None = None,
    previous: tuple[dict[str, Any], ...] = (),
) -> dict[str, Any]:
    return build_status(of or pod(), init, main, PLACE, BEFORE, previous, NOW)


def condition(result: dict[str, Any], kind: str) -> dict[str, Any]:
    found: dict[str, Any] = next(c for c in result["conditions"] if c["type"] == kind)
    return found


@pytest.mark.parametrize(
    ("policy", "init", "main", "phase"),
    [
        ("Always", [], [Waiting()], "Pending"),
        ("Always", [RUNNING], [Waiting()], "Pending"),
        ("Always", [ended(1)], [Waiting()], "Pending"),
        ("Never", [ended(1)], [Waiting()], "Failed"),
        ("Always", [ended(0)], [RUNNING], "Running"),
        ("Always", [], [RUNNING, Waiting()], "Running"),
        ("Always", [], [ended(1)], "Running"),
        ("OnFailure", [], [ended(0), RUNNING], "Running"),
        ("OnFailure", [], [ended(0), ended(0)], "Succeeded"),
        ("Never", [], [ended(0), ended(1)], "Failed"),
    ],
)
def test_the_phase_follows_from_the_containers(
    policy: str, init: list[State], main: list[State], phase: str
) -> None:
    result = status(
        *(view(state, f"c{i}") for i, state in enumerate(main)),
        init=tuple(view(state, f"i{i}") for i, state in enumerate(init)),
        of=pod(policy),
    )
    assert result["phase"] == phase


def test_a_crashed_container_that_waits_counts_as_running() -> None:
    assert status(view(Waiting("CrashLoopBackOff"), last=ended(1)))["phase"] == "Running"


def test_a_deleted_pod_whose_containers_ended_is_over() -> None:
    gone = pod(metadata={"deletionTimestamp": NOW, "deletionGracePeriodSeconds": 5})
    assert status(view(ended(0)), of=gone)["phase"] == "Succeeded"
    assert status(view(ended(137)), of=gone)["phase"] == "Failed"


def test_a_pod_is_ready_when_all_containers_are() -> None:
    both = status(view(RUNNING, "a", ready=True), view(RUNNING, "b", ready=True))
    assert condition(both, "Ready")["status"] == "True"
    one = status(view(RUNNING, "a", ready=True), view(RUNNING, "b"))
    assert condition(one, "Ready") == {
        "type": "Ready",
        "status": "False",
        "reason": "ContainersNotReady",
        "message": "containers with unready status: [b]",
        "lastTransitionTime": NOW,
    }


def test_a_sidecar_that_is_not_ready_holds_the_pod_back() -> None:
    sidecar = view(RUNNING, "s", sidecar=True, started=True)
    result = status(view(RUNNING, ready=True), init=(sidecar,))
    assert condition(result, "Initialized")["status"] == "True"
    assert condition(result, "Ready")["message"] == "containers with unready status: [s]"


def test_a_readiness_gate_holds_the_pod_back_until_its_condition_is_true() -> None:
    gate = {"readinessGates": [{"conditionType": "x/transport"}]}
    closed = status(view(RUNNING, ready=True), of=pod(spec=gate))
    assert condition(closed, "ContainersReady")["status"] == "True"
    assert condition(closed, "Ready")["reason"] == "ReadinessGatesNotReady"
    true = {"conditions": [{"type": "x/transport", "status": "True"}]}
    opened = status(view(RUNNING, ready=True), of=pod(spec=gate, status=true))
    assert condition(opened, "Ready")["status"] == "True"


def test_the_time_of_a_condition_moves_only_with_its_status() -> None:
    previous = (
        {"type": "Ready", "status": "False", "lastTransitionTime": BEFORE},
        {"type": "Initialized", "status": "False", "lastTransitionTime": BEFORE},
    )
    result = status(view(RUNNING), previous=previous)
    assert condition(result, "Ready")["lastTransitionTime"] == BEFORE
    assert condition(result, "Initialized")["lastTransitionTime"] == NOW


def test_the_conditions_of_others_are_left_alone() -> None:
    kinds = {item["type"] for item in status(view(RUNNING))["conditions"]}
    assert kinds == {"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"}


def test_addresses_and_generation_are_reported() -> None:
    result = status(view(RUNNING))
    assert (result["podIP"], result["podIPs"], result["hostIP"]) == (
        "127.11.0.2",
        [{"ip": "127.11.0.2"}],
        "127.11.0.1",
    )
    assert result["observedGeneration"] == 3


def test_a_crash_loop_is_shown_with_what_happened_last() -> None:
    last = Terminated(137, "Error", BEFORE, NOW, "out of luck", 9, "process://1")
    crashing = view(
        Waiting("CrashLoopBackOff", "back-off 10s"),
        last=last,
        restarts=2,
        container_id="process://1",
    )
    (shown,) = status(crashing)["containerStatuses"]
    assert shown["restartCount"] == 2
    assert shown["state"] == {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
    assert shown["lastState"]["terminated"] == {
        "exitCode": 137,
        "reason": "Error",
        "message": "out of luck",
        "signal": 9,
        "startedAt": BEFORE,
        "finishedAt": NOW,
        "containerID": "process://1",
    }


def test_a_container_that_ran_before_its_node_ended_restarts() -> None:
    before = {"containerID": "process://1", "restartCount": 1, "state": {"running": {}}}
    lost = view_before(Container("c", "i"), before, "Always")
    assert (lost.state, lost.restarts) == (Waiting(), 2)
    assert lost.last is not None
    assert (lost.last.exit_code, lost.last.reason) == (137, "ContainerStatusUnknown")


@pytest.mark.parametrize(("policy", "code"), [("Never", 0), ("Never", 1), ("OnFailure", 0)])
def test_a_container_that_its_policy_leaves_ended_stays_ended(policy: str, code: int) -> None:
    before = {"containerID": "x", "restartCount": 0, "state": {"terminated": {"exitCode": code}}}
    kept = view_before(Container("c", "i"), before, policy)
    assert isinstance(kept.state, Terminated)
    assert (kept.state.exit_code, kept.restarts) == (code, 0)


def test_a_container_that_never_ran_starts_for_the_first_time() -> None:
    assert view_before(Container("c", "i"), {}, "Never") == ContainerView(Container("c", "i"))
