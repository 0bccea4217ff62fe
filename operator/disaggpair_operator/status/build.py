"""The status of one pair: an ordered chain of checks, and the counts beside it.

Ready speaks of this generation in full; Serving of answers, whatever generation gives them.
Reconciling and Stalled are there only while they hold, as kstatus expects.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from disaggpair_operator import names
from disaggpair_operator.api.v1alpha1 import DisaggPair
from disaggpair_operator.model import Applied, Failure, Observed, Plan
from disaggpair_operator.names import ZONE_LABEL
from disaggpair_operator.status.conditions import Condition, fails, holds, stamped, unknown
from disaggpair_operator.status.nodes import shortfalls
from disaggpair_operator.status.secrets import secrets_found
from disaggpair_operator.status.workload import Workload, pod_fault, unscheduled, workload

_PARTS = (names.PREFILL, names.DECODE, names.ROUTER)
_READY_TYPES = {part: f"{part.capitalize()}Ready" for part in _PARTS}
_OTHER_ROLE = {names.PREFILL: names.DECODE, names.DECODE: names.PREFILL}
_NO_RETRY = ("NotOurs", "Invalid", "Forbidden")


def next_status(
    *,
    pair: DisaggPair | None,
    faults: Sequence[str],
    plan: Plan | None,
    observed: Observed,
    applied: Applied,
    previous: Mapping[str, Any],
    now: str,
) -> dict[str, Any]:
    """The full status to write.

    Args:
        pair: the parsed object, or None when it has faults.
        faults: sentences that say what is wrong with the object.
        plan: what should exist, or None when nothing can be planned.
        observed: what the API server held.
        applied: what the apply stage did.
        previous: the status as it is now, for times and for what is kept.
        now: the current time in RFC 3339, used where a condition changes.
    """
    generation = observed.owner.generation
    if pair is None or plan is None:
        conditions = _refused(faults)
        kept = {key: previous[key] for key in ("revision", "roles", "endpoint") if key in previous}
        body: dict[str, Any] = kept
    else:
        changed = [ref.name for ref in applied.changed if ref.kind == "Deployment"]
        parts = {part: workload(part, plan, observed, changed) for part in _PARTS}
        conditions = _accepted(pair, plan, observed, applied, parts)
        body = {
            "revision": plan.revision,
            "roles": {
                part: _role_status(seen, pair.spec.placement.zone) for part, seen in parts.items()
            },
            "endpoint": plan.endpoint,
        }
    return {
        "observedGeneration": generation,
        "conditions": stamped(conditions, previous.get("conditions", []), generation, now),
        **body,
        "selector": f"{names.PAIR_LABEL}={names.label_value(observed.owner.name)}",
    }


def unseen_status(
    *, observed_generation: int, text: str, previous: Mapping[str, Any], now: str
) -> dict[str, Any]:
    """The status when the operator may not read what belongs to the pair.

    What was known is kept as it was said; only the summary says that nothing is known now.
    """
    before = previous.get("conditions", [])
    said = [unknown("Ready", "Forbidden", text), holds("Stalled", "Forbidden", text)]
    kept = [c for c in before if c["type"] not in ("Ready", "Stalled", "Reconciling")]
    return {
        **previous,
        "observedGeneration": observed_generation,
        "conditions": [*stamped(said, before, observed_generation, now), *kept],
    }


def _refused(faults: Sequence[str]) -> list[Condition]:
    text = "; ".join(faults)
    return [
        fails("Ready", "InvalidSpec", text),
        fails("Accepted", "InvalidSpec", text),
        holds("Stalled", "InvalidSpec", "the spec has to be corrected"),
    ]


def _accepted(
    pair: DisaggPair,
    plan: Plan,
    observed: Observed,
    applied: Applied,
    parts: Mapping[str, Workload],
) -> list[Condition]:
    accepted = holds("Accepted", "Valid")
    engine = (
        fails("EngineSupported", "UntestedVersion", plan.risk)
        if plan.risk
        else holds("EngineSupported", "KnownVersion")
    )
    secrets = secrets_found(plan.uses, observed.secrets, observed.owner.namespace)
    if pair.spec.suspend:
        text = "spec.suspend is true: engines and router are scaled to zero"
        idle = [fails(_READY_TYPES[part], "Suspended", text) for part in _PARTS]
        suspended = [
            fails("Ready", "Suspended", text),
            accepted,
            engine,
            secrets,
            *idle,
            fails("Serving", "Suspended", text),
        ]
        return [*suspended, *_apply_faults(applied)]
    scheduled = _scheduled(observed, parts)
    ready = [_part_ready(parts[part]) for part in _PARTS]
    serving = _serving(pair, parts)
    # Pods that run keep what they read, so a Secret that is gone is no fault of theirs yet.
    waits = secrets.status == "False" and not all(parts[part].complete for part in _PARTS)
    missing = [secrets] if waits else []
    summary = _summary([*_apply_faults(applied), *missing, scheduled, *ready, serving])
    overdue = [part for part in _PARTS if parts[part].overdue]
    progress = _progress(summary, applied, overdue)
    return [summary, accepted, engine, secrets, scheduled, *ready, serving, *progress]


def _apply_faults(applied: Applied) -> list[Condition]:
    blocking = [failure for failure in applied.failures if failure.reason in _NO_RETRY]
    passing = [failure for failure in applied.failures if failure.reason not in _NO_RETRY]
    if blocking:
        return [holds("Stalled", blocking[0].reason, _sentences(blocking))]
    if passing:
        return [holds("Reconciling", passing[0].reason, _sentences(passing))]
    return []


def _sentences(failures: Sequence[Failure]) -> str:
    return "; ".join(f"{failure.ref}: {failure.message}" for failure in failures)


def _scheduled(observed: Observed, parts: Mapping[str, Workload]) -> Condition:
    for part in _PARTS:
        for pod in parts[part].pods:
            said = unscheduled(pod)
            if said is not None:
                text = f"{part}: no node for pod {pod['metadata']['name']}"
                detail = shortfalls(pod, observed.nodes) if observed.nodes else said
                return fails("Scheduled", "Unschedulable", f"{text}: {detail}")
    waiting = [part for part in _PARTS if len(parts[part].pods) < parts[part].wanted]
    if waiting or any(not pod["spec"].get("nodeName") for w in parts.values() for pod in w.pods):
        return unknown("Scheduled", "WaitingForPods", "pods are being created and placed")
    nodes = {part: ", ".join(parts[part].nodes) for part in (names.PREFILL, names.DECODE)}
    text = f"prefill on {nodes[names.PREFILL]}, decode on {nodes[names.DECODE]}"
    return holds("Scheduled", "Placed", text)


def _part_ready(seen: Workload) -> Condition:
    type_ = _READY_TYPES[seen.part]
    for pod in seen.pods:
        fault = pod_fault(pod)
        if fault:
            return fails(type_, *fault)
    count = f"{seen.ready} of {seen.wanted} ready"
    if seen.complete:
        return holds(type_, "PodsReady", count)
    if seen.ready >= seen.wanted:
        return fails(type_, "Updating", f"{seen.updated} of {seen.wanted} are up to date")
    return fails(type_, "Starting", count)


def _serving(pair: DisaggPair, parts: Mapping[str, Workload]) -> Condition:
    down = [part for part in _PARTS if parts[part].ready == 0]
    if not down:
        return holds("Serving", "Paired")
    alone = _OTHER_ROLE.get(down[0], "") if len(down) == 1 else ""
    if alone and pair.spec.router.fallback == "SingleEngine":
        text = f"no {down[0]} engine is ready; {alone} answers alone"
        return holds("Serving", f"{alone.capitalize()}Alone", text)
    return fails("Serving", "NoEndpoint", f"no {' and no '.join(down)} is ready")


def _summary(checks: Sequence[Condition]) -> Condition:
    for check in checks:
        if check.type in ("Stalled", "Reconciling"):
            return fails("Ready", check.reason, check.message)
        if check.status != "True":
            return fails("Ready", check.reason, f"{check.type}: {check.message}")
    return holds("Ready", "PairReady", "prefill, decode and router serve this generation")


def _progress(summary: Condition, applied: Applied, overdue: Sequence[str]) -> list[Condition]:
    if summary.status == "True":
        return []
    if overdue:
        text = f"{' and '.join(overdue)} made no progress within the time allowed: "
        return [holds("Stalled", "ProgressDeadlineExceeded", text + summary.message)]
    said = _apply_faults(applied)
    return said or [holds("Reconciling", summary.reason, summary.message)]


def _role_status(seen: Workload, zone: str) -> dict[str, Any]:
    """Counts and places.

    Engines are where the required affinity puts them; the zone label on pods, which Kubernetes
    copies there since 1.35, tells of the router too.
    """
    labelled = sorted(
        {found for pod in seen.pods if (found := pod["metadata"].get("labels", {}).get(ZONE_LABEL))}
    )
    certain = [zone] if seen.nodes and seen.part != names.ROUTER else []
    return {
        "replicas": seen.wanted,
        "ready": seen.ready,
        "updated": seen.updated,
        "nodes": seen.nodes,
        "zone": ", ".join(labelled or certain),
        "summary": f"{seen.ready}/{seen.wanted}",
    }
