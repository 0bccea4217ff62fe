"""A real API server takes the CRD, and accepts and refuses the same objects as the models."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import config

from disaggpair_bed.builders import raw_pair, spec
from disaggpair_bed.cluster import Cluster
from disaggpair_bed.controlplane.errors import ToolError
from disaggpair_bed.pair_cases import ACCEPTED, OWNED, REFUSED, Case
from disaggpair_operator import names
from disaggpair_operator.api.crd import CRD_NAME, crd_yaml
from disaggpair_operator.api.parse import parse
from disaggpair_operator.api.v1alpha1 import DisaggPair

CREATED = 201
REFUSALS = (400, 422)


@dataclass(frozen=True)
class Answer:
    """What the server says to the creation of an object."""

    status: int
    document: dict[str, Any]
    """The object as it would be stored, or a Status with the faults."""

    @property
    def message(self) -> str:
        return str(self.document["message"])


Create = Callable[[dict[str, Any]], Answer]
"""Creates an object in a dry run, strictly."""


@pytest.fixture(scope="module")
def definition(cluster: Cluster) -> None:
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=crd_yaml())
    cluster.kubectl("wait", "--for=condition=Established", f"crd/{CRD_NAME}", "--timeout=30s")


@pytest.fixture(scope="module")
def create(cluster: Cluster, definition: None) -> Iterator[Create]:
    with config.new_client_from_config(str(cluster.kubeconfig)) as api:
        # Not the typed call: it leaves nulls out of what it sends.
        folder = f"{cluster.server}/apis/{names.API_VERSION}/namespaces/default/{names.PLURAL}"
        url = f"{folder}?dryRun=All&fieldValidation=Strict"

        def send(raw: dict[str, Any]) -> Answer:
            headers = {"Content-Type": "application/json"}
            response = api.rest_client.request("POST", url, headers=headers, body=raw)
            return Answer(response.status, json.loads(response.read()))

        yield send


@pytest.fixture
def pairs(cluster: Cluster, definition: None, namespace: str) -> Callable[..., str]:
    """kubectl in the test's namespace."""

    def call(*args: str, stdin: str | None = None) -> str:
        return cluster.kubectl(f"--namespace={namespace}", *args, stdin=stdin)

    return call


def manifest(changes: dict[str, Any] | None = None, name: str = "chat") -> str:
    raw = raw_pair(changes, name=name)
    del raw["metadata"]["namespace"]
    return yaml.safe_dump(raw)


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: case.name)
def test_the_server_accepts_and_stores_what_the_models_read(case: Case, create: Create) -> None:
    raw = raw_pair(case.changes)
    answer = create(raw)
    assert answer.status == CREATED, answer.message
    assert parse(answer.document) == parse(raw)


@pytest.mark.parametrize("case", [*REFUSED, *OWNED], ids=lambda case: case.name)
def test_the_server_refuses_and_names_the_field(case: Case, create: Create) -> None:
    answer = create(raw_pair(case.changes))
    assert answer.status in REFUSALS
    assert case.field in answer.message
    assert case.says in answer.message


@pytest.mark.parametrize("field", ["model", "engine", "placement"])
def test_the_server_and_the_models_need_the_same_parts(field: str, create: Create) -> None:
    raw = raw_pair()
    del raw["spec"][field]
    assert f"spec.{field}: Required value" in create(raw).message
    faults = parse(raw)
    assert isinstance(faults, list)
    assert [fault.path for fault in faults] == [f"spec.{field}"]


@pytest.mark.parametrize("name", ["a", "1a", "a.b-c", "x" * 253])
def test_the_server_and_the_models_accept_the_name(name: str, create: Create) -> None:
    raw = raw_pair(name=name)
    assert create(raw).status == CREATED
    assert isinstance(parse(raw), DisaggPair)


@pytest.mark.parametrize("name", ["x" * 254, "A", "a_b", "a..b", "-a", "a-"])
def test_the_server_and_the_models_refuse_the_name(name: str, create: Create) -> None:
    raw = raw_pair(name=name)
    assert "metadata.name" in create(raw).message
    faults = parse(raw)
    assert isinstance(faults, list)
    assert [fault.path for fault in faults] == ["metadata.name"]


def test_defaults_are_stored_with_the_object(create: Create) -> None:
    stored = create(raw_pair()).document["spec"]
    assert stored["kvTransfer"] == {
        "bidirectional": True,
        "blockSize": 128,
        "decodeTTLSeconds": 480,
        "prefillLeaseSeconds": 30,
        "recomputeThresholdTokens": 64,
    }
    assert stored["decode"]["tensorParallelSize"] == 8
    assert stored["router"]["service"] == {"type": "ClusterIP", "port": 8000}
    assert stored["placement"]["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    ]
    assert "suspend" not in stored


def test_a_list_is_stored_as_it_was_applied(create: Create) -> None:
    tolerations = [{"key": "pool"}]
    env = [{"name": "HF_HOME"}]
    raw = raw_pair({"placement": {"tolerations": tolerations}, "engine": {"env": env}})
    stored = create(raw).document["spec"]
    assert stored["placement"]["tolerations"] == tolerations
    assert stored["engine"]["env"] == env


def test_kubectl_apply_of_a_wrong_object_says_which_value_is_allowed(
    pairs: Callable[..., str],
) -> None:
    wrong = manifest({"router": {"handleTTLSeconds": 480}})
    with pytest.raises(ToolError) as refusal:
        pairs("apply", "-f", "-", stdin=wrong)
    assert "spec.router.handleTTLSeconds is 480, but must be at most 450" in str(refusal.value)


def test_the_short_name_lists_the_columns(pairs: Callable[..., str]) -> None:
    pairs("apply", "--server-side", "-f", "-", stdin=manifest())
    pairs("patch", "dpair", "chat", "--subresource=status", "--type=merge", "-p", _status("True"))
    header, row = pairs("get", "dpair", "chat").splitlines()
    assert header.split() == [
        "NAME",
        "READY",
        "SERVING",
        "ZONE",
        "PREFILL",
        "DECODE",
        "ROUTER",
        "AGE",
    ]
    assert row.split()[:7] == ["chat", "True", "True", "us-east-2a", "1/2", "1/1", "1/1"]
    wide = pairs("get", "dpair", "chat", "-o", "wide")
    assert "Paired" in wide
    assert "http://chat-router" in wide


def test_the_status_is_written_apart_from_the_spec(pairs: Callable[..., str]) -> None:
    pairs("apply", "--server-side", "-f", "-", stdin=manifest())
    whole = json.dumps({**json.loads(_status("False")), "spec": {"suspend": True}})
    pairs("patch", "dpair", "chat", "--subresource=status", "--type=merge", "-p", whole)
    pairs("patch", "dpair", "chat", "--type=merge", "-p", _status("True"))
    stored = json.loads(pairs("get", "dpair", "chat", "-o", "json"))
    assert "suspend" not in stored["spec"]
    assert stored["metadata"]["generation"] == 1
    assert {entry["status"] for entry in stored["status"]["conditions"]} == {"False"}


def test_conditions_of_two_writers_merge_by_type(pairs: Callable[..., str]) -> None:
    pairs("apply", "--server-side", "-f", "-", stdin=manifest())
    for writer, aspect in (("one", "Ready"), ("two", "Audited"), ("one", "Ready")):
        head = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": "chat"}}
        body = {**head, "status": {"conditions": [_condition(aspect, "True")]}}
        pairs(
            "apply",
            "--server-side",
            "--subresource=status",
            f"--field-manager={writer}",
            "-f",
            "-",
            stdin=json.dumps(body),
        )
    stored = json.loads(pairs("get", "dpair", "chat", "-o", "json"))
    assert [entry["type"] for entry in stored["status"]["conditions"]] == ["Ready", "Audited"]


def test_a_second_apply_changes_nothing_and_owns_no_default(pairs: Callable[..., str]) -> None:
    apply = ("apply", "--server-side", "--show-managed-fields", "-o", "json", "-f", "-")
    before, after = (json.loads(pairs(*apply, stdin=manifest())) for _ in range(2))
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    (writer,) = after["metadata"]["managedFields"]
    owned = writer["fieldsV1"]["f:spec"]
    assert {field.removeprefix("f:") for field in owned} == set(spec())


def test_every_example_is_accepted(pairs: Callable[..., str]) -> None:
    examples = Path(__file__).parents[2] / "examples"
    pairs("apply", "--dry-run=server", "--validate=strict", "-f", str(examples))


def _condition(aspect: str, status: str) -> dict[str, Any]:
    return {
        "type": aspect,
        "status": status,
        "reason": "Paired",
        "message": "Both roles answer.",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": 1,
    }


def _status(value: str) -> str:
    counts = {"replicas": 1, "ready": 1, "updated": 1, "summary": "1/1"}
    return json.dumps(
        {
            "status": {
                "observedGeneration": 1,
                "conditions": [_condition("Ready", value), _condition("Serving", value)],
                "roles": {
                    "prefill": {**counts, "replicas": 2, "summary": "1/2"},
                    "decode": counts,
                    "router": counts,
                },
                "endpoint": "http://chat-router.default.svc:8000/v1",
            }
        }
    )
