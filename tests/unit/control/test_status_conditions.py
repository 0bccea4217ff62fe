"""The status of a pair, case by case."""

from typing import Any

import pytest

from disaggpair_bed.builders import (
    FACTS,
    engine_pod,
    live_deployment,
    merged,
    node,
    owner,
    pair,
    serving,
)
from disaggpair_operator.model import Applied, Failure, Observed, Owner, Plan, Ref
from disaggpair_operator.plan import desired
from disaggpair_operator.status import next_status

NOW = "2026-11-30T05:00:00Z"
LATER = "2026-11-30T06:00:00Z"
PARTS = ("prefill", "decode", "router")


def status_of(
    observed: Observed | None = None,
    changes: dict[str, Any] | None = None,
    *,
    applied: Applied | None = None,
    previous: dict[str, Any] | None = None,
    now: str = NOW,
) -> dict[str, Any]:
    of = observed.owner if observed else owner()
    wanted = pair(changes)
    plan = desired(wanted, of, FACTS)
    return next_status(
        pair=wanted,
        faults=(),
        plan=plan,
        observed=observed or serving(plan, of),
        applied=applied or Applied(),
        previous=previous or {},
        now=now,
    )


def conditions(status: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {entry["type"]: (entry["status"], entry["reason"]) for entry in status["conditions"]}


def message(status: dict[str, Any], type_: str) -> str:
    return next(str(entry["message"]) for entry in status["conditions"] if entry["type"] == type_)


def plan_for(of: Owner) -> Plan:
    return desired(pair(), of, FACTS)


def with_pods(**by_part: dict[str, Any]) -> Observed:
    """Everything serves, but for the changes to the pods and readiness of some parts."""
    of = owner()
    plan = plan_for(of)
    return Observed(
        owner=of,
        children=tuple(live_deployment(plan, p, ready=int(p not in by_part)) for p in PARTS),
        pods=tuple(engine_pod(plan, p, **by_part.get(p, {})) for p in PARTS),
    )


def test_a_pair_that_serves_this_generation_is_ready_and_neither_reconciles_nor_stalls() -> None:
    seen = conditions(status_of())
    assert seen == {
        "Ready": ("True", "PairReady"),
        "Accepted": ("True", "Valid"),
        "EngineSupported": ("True", "KnownVersion"),
        "SecretsFound": ("True", "NoneNamed"),
        "Scheduled": ("True", "Placed"),
        "PrefillReady": ("True", "PodsReady"),
        "DecodeReady": ("True", "PodsReady"),
        "RouterReady": ("True", "PodsReady"),
        "Serving": ("True", "Paired"),
    }


def test_the_counts_name_nodes_zone_endpoint_and_selector() -> None:
    status = status_of()
    assert status["roles"]["prefill"] == {
        "replicas": 1,
        "ready": 1,
        "updated": 1,
        "nodes": ["prefill-node"],
        "zone": "us-east-2a",
        "summary": "1/1",
    }
    assert status["roles"]["router"]["zone"] == ""
    assert status["endpoint"] == "http://chat-router.default.svc:8000/v1"
    assert status["selector"] == "disaggpair.dev/pair=chat"
    assert len(status["revision"]) == 10


def test_the_zone_label_of_a_pod_comes_before_the_zone_of_the_spec() -> None:
    moved = {"metadata": {"labels": {"topology.kubernetes.io/zone": "us-east-2z"}}}
    assert status_of(with_pods(router=moved))["roles"]["router"]["zone"] == "us-east-2z"


def test_a_wrong_spec_stalls_and_keeps_what_was_known() -> None:
    status = next_status(
        pair=None,
        faults=["spec.model.name: is missing", "spec.placement.zone: is empty"],
        plan=None,
        observed=Observed(owner=owner(generation=4)),
        applied=Applied(),
        previous={"revision": "abc", "endpoint": "http://x", "conditions": []},
        now=NOW,
    )
    assert conditions(status) == {
        "Ready": ("False", "InvalidSpec"),
        "Accepted": ("False", "InvalidSpec"),
        "Stalled": ("True", "InvalidSpec"),
    }
    assert (
        message(status, "Accepted") == "spec.model.name: is missing; spec.placement.zone: is empty"
    )
    assert status["revision"] == "abc"
    assert status["observedGeneration"] == 4


def test_nothing_there_yet_is_reconciling() -> None:
    seen = conditions(status_of(Observed(owner=owner())))
    assert seen["Ready"] == ("False", "WaitingForPods")
    assert seen["Scheduled"] == ("Unknown", "WaitingForPods")
    assert seen["PrefillReady"] == ("False", "Starting")
    assert seen["Serving"] == ("False", "NoEndpoint")
    assert seen["Reconciling"] == ("True", "WaitingForPods")


def test_a_pod_without_a_node_says_which_node_lacks_what() -> None:
    waiting = {
        "spec": {"nodeName": ""},
        "status": {
            "conditions": [
                {"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available"}
            ]
        },
    }
    observed = with_pods(prefill=waiting)
    nodes = (
        node("a", status={"allocatable": {"vpc.amazonaws.com/efa": "15"}}),
        node("b", metadata={"labels": {"topology.kubernetes.io/zone": "us-east-2b"}}),
    )
    status = status_of(Observed(observed.owner, observed.children, observed.pods, nodes))
    assert conditions(status)["Scheduled"] == ("False", "Unschedulable")
    text = message(status, "Scheduled")
    assert "a offers 15 vpc.amazonaws.com/efa, wanted 16" in text
    assert "b has label topology.kubernetes.io/zone that is us-east-2b, wanted us-east-2a" in text
    assert conditions(status)["Ready"] == ("False", "Unschedulable")


def test_without_a_look_at_the_nodes_the_scheduler_has_the_word() -> None:
    entries = [
        {"type": "Initialized", "status": "False"},
        {"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available"},
    ]
    waiting = {"spec": {"nodeName": ""}, "status": {"conditions": entries}}
    assert message(status_of(with_pods(decode=waiting)), "Scheduled").endswith(
        "0/2 nodes are available"
    )


def test_a_pod_the_scheduler_has_not_looked_at_is_waiting() -> None:
    observed = with_pods(decode={"spec": {"nodeName": ""}})
    assert conditions(status_of(observed))["Scheduled"] == ("Unknown", "WaitingForPods")


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (
            {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}},
            "ImagePullBackOff, no such image",
        ),
        (
            {
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}},
                "lastState": {"terminated": {"exitCode": 2, "message": "unknown key kv_rank\n"}},
            },
            "CrashLoopBackOff, exit code 2: unknown key kv_rank",
        ),
        (
            {
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"exitCode": 137}},
            },
            "CrashLoopBackOff, exit code 137",
        ),
        ({"state": {"waiting": {"reason": "RunContainerError"}}}, "RunContainerError"),
    ],
)
def test_an_engine_that_cannot_run_says_why(state: dict[str, Any], sentence: str) -> None:
    entry = {"name": "engine", **state}
    status = status_of(with_pods(prefill={"status": {"containerStatuses": [entry]}}))
    assert message(status, "PrefillReady").endswith(sentence)
    assert conditions(status)["Ready"][0] == "False"


def test_a_long_last_word_keeps_its_end() -> None:
    entry = {
        "name": "engine",
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 1, "message": "x" * 2000 + "the cause"}},
    }
    text = message(
        status_of(with_pods(prefill={"status": {"containerStatuses": [entry]}})), "PrefillReady"
    )
    assert text.endswith("the cause")
    assert len(text) < 600


def test_a_container_that_merely_starts_is_no_fault() -> None:
    entry = {"name": "engine", "state": {"waiting": {"reason": "ContainerCreating"}}}
    status = status_of(with_pods(prefill={"status": {"containerStatuses": [entry]}}))
    assert conditions(status)["PrefillReady"] == ("False", "Starting")


@pytest.mark.parametrize(
    ("fallback", "expected"),
    [("SingleEngine", ("True", "DecodeAlone")), ("Refuse", ("False", "NoEndpoint"))],
)
def test_without_prefill_the_fallback_decides_whether_the_pair_serves(
    fallback: str, expected: tuple[str, str]
) -> None:
    status = status_of(with_pods(prefill={}), {"router": {"fallback": fallback}})
    assert conditions(status)["Serving"] == expected


@pytest.mark.parametrize(
    ("fallback", "expected"),
    [("SingleEngine", ("True", "PrefillAlone")), ("Refuse", ("False", "NoEndpoint"))],
)
def test_without_decode_the_fallback_decides_too(fallback: str, expected: tuple[str, str]) -> None:
    status = status_of(with_pods(decode={}), {"router": {"fallback": fallback}})
    assert conditions(status)["Serving"] == expected


def test_an_engine_without_progress_for_too_long_stalls_the_pair() -> None:
    observed = with_pods(decode={})
    late = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    fine = {"type": "Available", "status": "False"}
    children = [
        merged(child, {"status": {"conditions": [fine, late]}})
        if child["metadata"]["name"] == "chat-decode"
        else child
        for child in observed.children
    ]
    status = status_of(Observed(observed.owner, tuple(children), observed.pods))
    assert conditions(status)["Stalled"] == ("True", "ProgressDeadlineExceeded")
    assert message(status, "Stalled").startswith("decode made no progress")
    assert "Reconciling" not in conditions(status)


def test_an_old_generation_that_answers_serves_but_is_not_ready() -> None:
    of = owner()
    plan = plan_for(of)
    stale = live_deployment(plan, "decode", metadata={"generation": 2})
    observed = Observed(
        of,
        (stale, *(live_deployment(plan, p) for p in ("prefill", "router"))),
        tuple(engine_pod(plan, p) for p in PARTS),
    )
    seen = conditions(status_of(observed))
    assert seen["DecodeReady"] == ("False", "Updating")
    assert seen["Serving"] == ("True", "Paired")
    assert seen["Ready"] == ("False", "Updating")


def test_a_deployment_that_was_just_changed_is_not_ready_yet() -> None:
    applied = Applied(changed=(Ref("apps/v1", "Deployment", "default", "chat-prefill"),))
    assert conditions(status_of(applied=applied))["PrefillReady"] == ("False", "Updating")


def test_an_old_pod_that_is_still_there_keeps_the_part_from_being_ready() -> None:
    observed = with_pods()
    extra = engine_pod(plan_for(observed.owner), "decode", metadata={"name": "chat-decode-old"})
    status = status_of(Observed(observed.owner, observed.children, (*observed.pods, extra)))
    assert conditions(status)["DecodeReady"] == ("False", "Updating")


@pytest.mark.parametrize(
    "stray",
    [
        {"status": {"phase": "Failed", "reason": "Evicted"}},
        {"status": {"phase": "Succeeded"}},
        {"metadata": {"ownerReferences": []}},
        {"metadata": {"ownerReferences": [{"kind": "Job", "name": "j", "controller": True}]}},
    ],
    ids=["evicted", "succeeded", "bare", "of-another-controller"],
)
def test_a_pod_that_is_over_or_of_somebody_else_does_not_count(stray: dict[str, Any]) -> None:
    observed = with_pods()
    pod = engine_pod(plan_for(observed.owner), "decode", **stray)
    status = status_of(Observed(observed.owner, observed.children, (*observed.pods, pod)))
    assert conditions(status)["Ready"] == ("True", "PairReady")


@pytest.mark.parametrize(
    ("reason", "type_"),
    [
        ("NotOurs", "Stalled"),
        ("Invalid", "Stalled"),
        ("Forbidden", "Stalled"),
        ("Conflict", "Reconciling"),
        ("Unavailable", "Reconciling"),
    ],
)
def test_what_could_not_be_applied_is_said_and_stalls_when_a_retry_cannot_help(
    reason: Any, type_: str
) -> None:
    ref = Ref("v1", "Service", "default", "chat-router")
    applied = Applied(failures=(Failure(ref, reason, "belongs to somebody else"),))
    status = status_of(applied=applied)
    assert conditions(status)[type_] == ("True", reason)
    assert message(status, "Ready") == "Service default/chat-router: belongs to somebody else"


def test_a_suspended_pair_is_not_ready_and_does_not_reconcile() -> None:
    seen = conditions(status_of(changes={"suspend": True}))
    assert seen["Ready"] == ("False", "Suspended")
    assert seen["Serving"] == ("False", "Suspended")
    assert not {"Reconciling", "Stalled"} & seen.keys()


def test_an_accepted_risk_is_a_condition() -> None:
    engine = {"image": "e/v:v0.34.0", "allowUntestedVersion": True}
    status = status_of(changes={"engine": engine})
    assert conditions(status)["EngineSupported"] == ("False", "UntestedVersion")
    assert conditions(status)["Ready"][0] == "True"


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    first = status_of(now=NOW)
    second = status_of(now=LATER, previous=first)
    assert second == first
    third = status_of(with_pods(decode={}), now=LATER, previous=first)
    times = {entry["type"]: entry["lastTransitionTime"] for entry in third["conditions"]}
    assert times["DecodeReady"] == LATER
    assert times["PrefillReady"] == NOW
