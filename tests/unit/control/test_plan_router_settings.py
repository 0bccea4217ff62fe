"""What of `spec.router` reaches the router: its file, flags, variables, volumes and resources."""

import json
from typing import Any

import pytest

from disaggpair_bed.builders import FACTS, owner, pair, planned, raw_pair
from disaggpair_bed.pair_cases import ACCEPTED, Case
from disaggpair_operator.api.parse import parse
from disaggpair_operator.api.v1alpha1 import DisaggPair
from disaggpair_operator.api.v1alpha1.router import TAKEN_CONVERSATION_HEADERS
from disaggpair_operator.plan import desired
from disaggpair_operator.plan.releases import RELEASES
from disaggpair_operator.plan.router_config import router_config, router_file
from disaggpair_router.config import RouterConfig

RELEASE = RELEASES[0, 33]
HEADERS = {"name": "collector", "key": "headers"}
API_KEY = {"name": "engine-key", "key": "key"}


def told(changes: dict[str, Any] | None = None) -> RouterConfig:
    return router_config(owner(), pair(changes).spec, RELEASE)


def written(changes: dict[str, Any] | None = None) -> dict[str, Any]:
    return dict(json.loads(router_file(owner(), pair(changes).spec, RELEASE)))


def pod(changes: dict[str, Any] | None = None, part: str = "router") -> dict[str, Any]:
    plan = desired(pair(changes), owner(), FACTS)
    return dict(planned(plan, "Deployment", part)["spec"]["template"]["spec"])


def container(changes: dict[str, Any] | None = None, part: str = "router") -> dict[str, Any]:
    (only,) = pod(changes, part)["containers"]
    return dict(only)


def variable(name: str, changes: dict[str, Any], part: str = "router") -> Any:
    found = [entry for entry in container(changes, part)["env"] if entry["name"] == name]
    return found[0] if found else None


def test_the_defaults_of_the_api_are_the_routers_own_and_so_not_written() -> None:
    assert written() == {
        "pair": "chat",
        "endpoints": {"kind": "pods", "namespace": "default", "pair": "chat"},
        "kv": {"handle_in_stream": True, "leases": {}, "verified_reads": True},
        "timeouts": {"drain_s": 60.0},
    }


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: case.name)
def test_the_router_reads_from_its_file_what_it_is_told(case: Case) -> None:
    accepted = parse(raw_pair(case.changes))
    assert isinstance(accepted, DisaggPair)
    text = router_file(owner(), accepted.spec, RELEASE)
    assert RouterConfig.model_validate_json(text) == router_config(owner(), accepted.spec, RELEASE)


def test_a_router_is_replaced_for_what_differs_and_not_for_a_default_that_is_spelled_out() -> None:
    def template(changes: dict[str, Any]) -> Any:
        plan = desired(pair(changes), owner(), FACTS)
        return planned(plan, "Deployment", "router")["spec"]["template"]

    spelled_out = {"maxImbalance": 16, "limits": {"maxAbandoned": 64}, "guard": None}
    assert template({"router": spelled_out}) == template({})
    assert template({"router": {"maxImbalance": 17}}) != template({})


def test_a_guard_is_off_until_it_is_asked_for_and_told_as_shares() -> None:
    assert told().guard.sample == 0
    assert told({"router": {"guard": {}}}).guard.sample == 0.001
    set_ = told({"router": {"guard": {"samplingRatePerMillion": 1, "tolerancePercent": 40}}})
    assert (set_.guard.sample, set_.guard.tolerance) == (0.000001, 0.4)


def test_traces_are_off_until_they_are_asked_for() -> None:
    assert told().tracing is None
    traces = told({"router": {"tracing": {"endpoint": "http://collector:4318"}}}).tracing
    assert traces is not None
    assert (traces.endpoint, traces.sample_ratio) == ("http://collector:4318", 0.01)


def test_headers_of_the_collector_come_by_reference_only() -> None:
    tracing = {"endpoint": "http://c", "headersSecretRef": HEADERS}
    found = variable("OTEL_EXPORTER_OTLP_HEADERS", {"router": {"tracing": tracing}})
    assert found["valueFrom"] == {"secretKeyRef": HEADERS}
    assert (
        variable("OTEL_EXPORTER_OTLP_HEADERS", {"router": {"tracing": {"endpoint": "http://c"}}})
        is None
    )
    assert variable("OTEL_EXPORTER_OTLP_HEADERS", {}) is None


def test_the_debug_page_has_a_port_that_no_service_or_container_names() -> None:
    changes = {"router": {"debug": True}}
    assert told().debug_port is None
    assert told(changes).debug_port == 9091
    assert 9091 not in [port["containerPort"] for port in container(changes)["ports"]]


@pytest.mark.parametrize(
    ("router", "requests", "limits"),
    [
        ({}, {"cpu": "1", "memory": "1280Mi"}, None),
        ({"workers": 4}, {"cpu": "4", "memory": "5120Mi"}, None),
        ({"resources": {"cpu": "100m"}}, {"cpu": "100m", "memory": "1280Mi"}, {"cpu": "100m"}),
        (
            {"limits": {"maxBodyBytes": 1024, "maxRequestBytes": 1025}},
            {"cpu": "1", "memory": "257Mi"},
            None,
        ),
        (
            {"workers": 2, "resources": {"memory": "4Gi"}},
            {"cpu": "2", "memory": "4Gi"},
            {"memory": "4Gi"},
        ),
    ],
)
def test_a_pod_requests_what_its_processes_need_and_is_limited_by_what_is_given(
    router: dict[str, Any], requests: dict[str, str], limits: dict[str, str] | None
) -> None:
    found = container({"router": router})["resources"]
    assert (found["requests"], found.get("limits")) == (requests, limits)


def test_several_processes_have_a_folder_that_they_may_write_to() -> None:
    several = {"router": {"workers": 2}}
    assert told(several).workers == 2
    folder = variable("TMPDIR", several)["value"]
    (mount,) = [m for m in container(several)["volumeMounts"] if m["mountPath"] == folder]
    assert "readOnly" not in mount
    assert any(v["name"] == mount["name"] and "emptyDir" in v for v in pod(several)["volumes"])
    assert variable("TMPDIR", {}) is None
    assert all(mount["readOnly"] for mount in container()["volumeMounts"])


def test_the_line_of_a_turn_is_json_where_that_is_asked_for() -> None:
    assert container({"router": {"logFormat": "JSON"}})["args"][-2:] == ["--log-format", "json"]
    assert "--log-format" not in container()["args"]


def test_the_engines_key_reaches_engines_and_router_by_reference_only() -> None:
    changes = {"engine": {"apiKeySecretRef": API_KEY}}
    wanted = {"secretKeyRef": API_KEY}
    for role in ("prefill", "decode"):
        assert variable("VLLM_API_KEY", changes, role)["valueFrom"] == wanted
        assert variable("VLLM_API_KEY", {}, role) is None
    assert variable("DISAGGPAIR_ENGINE_KEY", changes)["valueFrom"] == wanted
    assert variable("DISAGGPAIR_ENGINE_KEY", {}) is None


@pytest.mark.parametrize(
    ("image", "tell"), [("v0.33.0", True), ("v0.31.0", True), ("v0.30.0", False)]
)
def test_an_engine_tells_its_cached_tokens_where_the_client_is_told_what_p_had(
    image: str, tell: bool
) -> None:
    flag = "--enable-prompt-tokens-details"
    changes = {"engine": {"image": f"example/vllm:{image}", "connector": "Nixl"}}
    assert flag in container(changes, "prefill")["args"]
    assert (flag in container(changes, "decode")["args"]) is tell


def test_the_flag_for_cached_tokens_can_be_taken_back_by_the_users_arguments() -> None:
    off = "--no-enable-prompt-tokens-details"
    for changes in ({"engine": {"args": [off]}}, {"decode": {"args": [off]}}):
        args = container(changes, "decode")["args"]
        assert args.index(off) > args.index("--enable-prompt-tokens-details")


@pytest.mark.parametrize("header", TAKEN_CONVERSATION_HEADERS)
def test_no_header_of_a_caller_can_be_a_conversations(header: str) -> None:
    refused = parse(raw_pair({"router": {"conversationHeaders": [header]}}))
    assert isinstance(refused, list)


def test_a_refused_number_of_processes_is_said_with_both_numbers() -> None:
    (fault,) = parse(raw_pair({"router": {"workers": 8, "resources": {"cpu": "1500m"}}}))
    assert str(fault) == (
        "spec.router.workers is 8, but must be at most spec.router.resources.cpu, which is 1500m: "
        "give more CPUs or fewer workers"
    )
