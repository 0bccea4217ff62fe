"""A pod's status from the states of its containers. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from disaggpair_bed.node.downward import Placement
from disaggpair_bed.node.spec import Container, Pod

DONE_PHASES = ("Succeeded", "Failed")


@dataclass(frozen=True)
class Waiting:
    """Not running: `reason` is what kubectl shows."""

    reason: str = "PodInitializing"
    message: str = ""


@dataclass(frozen=True)
class Running:
    """Running since a time in the API's format."""

    started_at: str


@dataclass(frozen=True)
class Terminated:
    """Ended."""

    exit_code: int
    reason: str
    started_at: str
    finished_at: str
    message: str = ""
    signal: int = 0
    container_id: str = ""


State = Waiting | Running | Terminated


@dataclass(frozen=True)
class ContainerView:
    """What is known of one container."""

    container: Container
    state: State = Waiting()
    last: Terminated | None = None
    restarts: int = 0
    ready: bool = False
    started: bool = False
    container_id: str = ""


def view_before(
    container: Container, status: Mapping[str, Any], restart_policy: str
) -> ContainerView:
    """A container after what a former life of the node reported of it.

    Processes die with their node, so one that ran counts as lost. It is to start again, unless
    the policy leaves it as it ended: then its state is Terminated.
    """
    if not status.get("containerID"):
        return ContainerView(container)
    state = status.get("state") or {}
    end = state.get("terminated") or {
        "exitCode": 137,
        "reason": "ContainerStatusUnknown",
        "message": "the node ended, and the container with it",
        "startedAt": (state.get("running") or {}).get("startedAt", ""),
    }
    lost = Terminated(
        exit_code=end["exitCode"],
        reason=end.get("reason", ""),
        started_at=end.get("startedAt", ""),
        finished_at=end.get("finishedAt", ""),
        message=end.get("message", ""),
        signal=end.get("signal", 0),
        container_id=status["containerID"],
    )
    restarts = int(status.get("restartCount") or 0)
    if restart_policy == "Never" or (restart_policy == "OnFailure" and lost.exit_code == 0):
        return ContainerView(
            container, state=lost, restarts=restarts, container_id=lost.container_id
        )
    return ContainerView(container, last=lost, restarts=restarts + 1)


def build_status(
    pod: Pod,
    init: Sequence[ContainerView],
    main: Sequence[ContainerView],
    place: Placement,
    start_time: str,
    previous: Sequence[Mapping[str, Any]],
    now: str,
) -> dict[str, Any]:
    """The status to report; `previous` are the pod's conditions so far, for transition times.

    Conditions of others (PodScheduled, readiness gates) are not in it: it is merged, not put.
    """
    pod_ip, host_ip = place.pod_ip, place.host_ip
    initialised = all(_init_done(view) for view in init)
    phase = pod_phase(pod, init, main, initialised)
    return {
        "phase": phase,
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "podIP": pod_ip or None,
        "podIPs": [{"ip": pod_ip}] if pod_ip else None,
        "startTime": start_time,
        "observedGeneration": pod.raw["metadata"].get("generation"),
        "conditions": _conditions(pod, init, main, phase, initialised, pod_ip, previous, now),
        "initContainerStatuses": [_container_status(view, is_init=True) for view in init],
        "containerStatuses": [_container_status(view) for view in main],
    }


def pod_phase(
    pod: Pod, init: Sequence[ContainerView], main: Sequence[ContainerView], initialised: bool
) -> str:
    """Pending, Running, Succeeded or Failed."""
    if not initialised:
        failed = any(
            _failed(view) and not view.container.sidecar and pod.restart_policy == "Never"
            for view in init
        )
        return "Failed" if failed else "Pending"
    if all(isinstance(view.state, Terminated) for view in main):
        if pod.restart_policy == "Always" and pod.deletion_grace_s is None:
            return "Running"
        if not any(_failed(view) for view in main):
            return "Succeeded"
        return "Failed"
    untouched = [v for v in main if isinstance(v.state, Waiting) and v.last is None]
    return "Pending" if len(untouched) == len(main) else "Running"


def _init_done(view: ContainerView) -> bool:
    if view.container.sidecar:
        return view.started
    return isinstance(view.state, Terminated) and view.state.exit_code == 0


def _failed(view: ContainerView) -> bool:
    return isinstance(view.state, Terminated) and view.state.exit_code != 0


def _conditions(
    pod: Pod,
    init: Sequence[ContainerView],
    main: Sequence[ContainerView],
    phase: str,
    initialised: bool,
    pod_ip: str,
    previous: Sequence[Mapping[str, Any]],
    now: str,
) -> list[dict[str, Any]]:
    incomplete = [view.container.name for view in init if not _init_done(view)]
    # A sidecar counts for readiness like the containers beside it.
    unready = [
        v.container.name
        for v in (*init, *main)
        if (v in main or v.container.sidecar) and not v.ready
    ]
    done = phase in DONE_PHASES
    if done:
        reason, message = ("PodCompleted" if phase == "Succeeded" else "PodFailed"), ""
    else:
        reason, message = (
            "ContainersNotReady",
            f"containers with unready status: [{' '.join(unready)}]",
        )
    containers_ready = not done and not unready
    gates = _closed_gates(pod)
    ready = containers_ready and not gates
    if containers_ready and gates:
        reason = "ReadinessGatesNotReady"
        message = f"corresponding condition of pod readiness gate {gates[0]!r} is not True"
    wanted = [
        ("PodReadyToStartContainers", bool(pod_ip) and not done, "", ""),
        (
            "Initialized",
            initialised,
            "ContainersNotInitialized",
            f"containers with incomplete status: [{' '.join(incomplete)}]",
        ),
        ("Ready", ready, reason, message),
        (
            "ContainersReady",
            containers_ready,
            "ContainersNotReady" if not done else reason,
            "" if done else f"containers with unready status: [{' '.join(unready)}]",
        ),
    ]
    before = {item["type"]: item for item in previous}
    return [_condition(*item, before.get(item[0]), now) for item in wanted]


def _condition(
    kind: str,
    holds: bool,
    reason: str,
    message: str,
    before: Mapping[str, Any] | None,
    now: str,
) -> dict[str, Any]:
    status = "True" if holds else "False"
    same = before is not None and before.get("status") == status
    since = before.get("lastTransitionTime") if same and before is not None else now
    return {
        "type": kind,
        "status": status,
        # null removes what an earlier report said.
        "reason": None if holds else reason or None,
        "message": None if holds else message or None,
        "lastTransitionTime": since,
    }


def _closed_gates(pod: Pod) -> list[str]:
    conditions = pod.raw.get("status", {}).get("conditions") or ()
    true = {item["type"] for item in conditions if item.get("status") == "True"}
    gates = pod.raw["spec"].get("readinessGates") or ()
    return [gate["conditionType"] for gate in gates if gate["conditionType"] not in true]


def _container_status(view: ContainerView, is_init: bool = False) -> dict[str, Any]:
    status: dict[str, Any] = {
        "name": view.container.name,
        "image": view.container.image,
        "imageID": view.container.image if view.container_id else "",
        # An init container counts as ready when it has done its work.
        "ready": view.ready or (is_init and _init_done(view)),
        "started": view.started,
        "restartCount": view.restarts,
        "state": _state(view.state),
        "lastState": _state(view.last) if view.last else {},
    }
    if view.container_id:
        status["containerID"] = view.container_id
    return status


def _state(state: State) -> dict[str, Any]:
    if isinstance(state, Waiting):
        return {"waiting": _without_empty({"reason": state.reason, "message": state.message})}
    if isinstance(state, Running):
        return {"running": {"startedAt": state.started_at}}
    return {
        "terminated": {"exitCode": state.exit_code}
        | _without_empty(
            {
                "reason": state.reason,
                "message": state.message,
                "signal": state.signal,
                "startedAt": state.started_at,
                "finishedAt": state.finished_at,
                "containerID": state.container_id,
            }
        )
    }


def _without_empty(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value}
