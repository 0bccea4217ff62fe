"""What a part's Deployment and pods say of it: counts, and why it is not ready."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from disaggpair_operator import names
from disaggpair_operator.model import Object, Observed, Plan

_WAITING_FAULTS = {
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "RunContainerError",
}
_MESSAGE_LIMIT = 400


@dataclass(frozen=True)
class Workload:
    """One part of the pair, prefill, decode or router, as it was seen."""

    part: str
    wanted: int
    ready: int
    updated: int
    current: bool
    """The Deployment controller has seen the template the plan wants."""
    pods: tuple[Object, ...]
    overdue: bool = False
    """The Deployment has made no progress within its progressDeadlineSeconds."""

    @property
    def complete(self) -> bool:
        """Every wanted pod runs the current template and is ready, and no other is left."""
        live = len(self.pods)
        return self.current and self.ready == self.updated == self.wanted == live

    @property
    def nodes(self) -> list[str]:
        """Names of the nodes the pods run on, sorted."""
        return sorted({name for pod in self.pods if (name := pod["spec"].get("nodeName"))})


def workload(part: str, plan: Plan, observed: Observed, changed: Iterable[str]) -> Workload:
    """The part as planned and observed.

    Args:
        part: prefill, decode or router.
        plan: what should be there.
        observed: what was there when the reconcile began.
        changed: names of the Deployments this reconcile has just changed; what was observed of
            them is of an older generation.
    """
    desired = next(obj for obj in plan.objects if _is_deployment(obj, part))
    name = desired["metadata"]["name"]
    live = next((obj for obj in observed.children if _is_deployment(obj, part)), None)
    status: Mapping[str, Any] = live.get("status", {}) if live else {}
    seen = (
        live is not None
        and name not in set(changed)
        and status.get("observedGeneration", 0) >= live["metadata"].get("generation", 0)
    )
    pods = [pod for pod in observed.pods if _counts(pod, part, name)]
    return Workload(
        part=part,
        wanted=desired["spec"]["replicas"],
        ready=status.get("readyReplicas", 0),
        updated=status.get("updatedReplicas", 0) if seen else 0,
        current=seen,
        pods=tuple(sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))),
        overdue=seen and any(_is_overdue(entry) for entry in status.get("conditions", [])),
    )


def _counts(pod: Object, part: str, deployment: str) -> bool:
    """Whether the pod is one of the Deployment's that runs or will.

    An evicted pod stays as Failed until somebody clears it away, and a pod that merely carries
    the labels is nobody's.
    """
    if _label(pod, names.ROLE_LABEL) != part:
        return False
    if pod.get("status", {}).get("phase") in ("Failed", "Succeeded"):
        return False
    return any(
        owner["kind"] == "ReplicaSet" and owner["name"].rpartition("-")[0] == deployment
        for owner in pod["metadata"].get("ownerReferences", [])
        if owner.get("controller")
    )


def _is_overdue(condition: Mapping[str, Any]) -> bool:
    return (condition["type"], condition["status"]) == ("Progressing", "False")


def _is_deployment(obj: Object, part: str) -> bool:
    return obj["kind"] == "Deployment" and _label(obj, names.ROLE_LABEL) == part


def _label(obj: Object, key: str) -> str:
    return str(obj["metadata"].get("labels", {}).get(key, ""))


def pod_fault(pod: Object) -> tuple[str, str] | None:
    """Reason and sentence when a container of the pod cannot run, else None."""
    status = pod.get("status", {})
    name = pod["metadata"]["name"]
    for entry in [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]:
        waiting = entry.get("state", {}).get("waiting", {})
        if waiting.get("reason") not in _WAITING_FAULTS:
            continue
        detail = waiting.get("message", "")
        last = entry.get("lastState", {}).get("terminated", {})
        if last:
            said = _tail(str(last.get("message", "")))
            detail = f"exit code {last.get('exitCode')}" + (f": {said}" if said else "")
        sentence = f"container {entry['name']} of pod {name}: {waiting['reason']}"
        return str(waiting["reason"]), f"{sentence}, {detail}" if detail else sentence
    return None


def _tail(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MESSAGE_LIMIT else "… " + text[-_MESSAGE_LIMIT:]


def unscheduled(pod: Object) -> str | None:
    """The scheduler's own message when it found no node for the pod, else None."""
    if pod["spec"].get("nodeName"):
        return None
    for entry in pod.get("status", {}).get("conditions", []):
        if entry["type"] == "PodScheduled" and entry["status"] == "False":
            return str(entry.get("message", ""))
    return None
