"""Raw objects become pairs, or sentences that name the field, its value and what is allowed."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from disaggpair_bed.builders import pair, raw_pair
from disaggpair_operator.api.faults import faults_of
from disaggpair_operator.api.parse import Fault, parse
from disaggpair_operator.api.v1alpha1 import DisaggPair, Status


def sentences(raw: Mapping[str, Any]) -> list[str]:
    faults = parse(raw)
    assert isinstance(faults, list)
    return [str(fault) for fault in faults]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"prefill": {"replicas": 0}},
            "spec.prefill.replicas is 0, but must be from 1 to 64",
        ),
        (
            {"kvTransfer": {"blockSize": 17}},
            "spec.kvTransfer.blockSize is 17, but must be one of 16, 32, 64, 128, 256",
        ),
        (
            {"fabric": {"type": "UCX"}},
            'spec.fabric.type is "UCX", but must be one of "EFA", "TCP"',
        ),
        (
            {"kvTransfer": {"decodeTTLSecond": 1}},
            "spec.kvTransfer.decodeTTLSecond is not a field; did you mean decodeTTLSeconds?",
        ),
        (
            {"rollout": {"surge": 1}},
            "spec.rollout.surge is not a field; allowed here: strategy, drainSeconds",
        ),
        (
            {"placement": {"zone": ""}},
            "spec.placement.zone is empty, but must have from 1 to 63 characters",
        ),
        (
            {"placement": {"zone": "z" * 64}},
            "spec.placement.zone has 64 characters, but must have from 1 to 63 characters",
        ),
        (
            {"placement": {"instanceTypes": []}},
            "spec.placement.instanceTypes is empty, but must have from 1 to 32 entries",
        ),
        (
            {"placement": {"nodeSelector": {f"k{i}": "v" for i in range(17)}}},
            "spec.placement.nodeSelector has 17 entries, but must have from 0 to 16 entries",
        ),
        (
            {"placement": {"nodeSelector": {"a.example/b": True}}},
            "spec.placement.nodeSelector[a.example/b] is true, but must be text, in quotes if it "
            "looks like a number",
        ),
        (
            {"fabric": {"hugepages": "5G"}},
            'spec.fabric.hugepages is "5G", but must match ^$|^[1-9][0-9]{0,6}(Mi|Gi)$',
        ),
        (
            {"prefill": {"replicas": "two"}},
            'spec.prefill.replicas is "two", but must be a whole number',
        ),
        ({"suspend": "yes"}, 'spec.suspend is "yes", but must be true or false'),
        ({"prefill": {"args": "--seed=1"}}, 'spec.prefill.args is "--seed=1", but must be a list'),
        ({"model": []}, "spec.model is [], but must be a mapping"),
        (
            {"placement": {"nodeSelector": "a"}},
            'spec.placement.nodeSelector is "a", but must be a mapping',
        ),
        ({"model": None}, "spec.model is required"),
        (
            {"engine": {"env": [{"name": "A"}, {"name": "B"}, {"name": "A"}]}},
            "spec.engine.env names A more than once; each variable is set once",
        ),
        (
            {"engine": {"env": [{"name": "A", "value": "x" * 4097}]}},
            "spec.engine.env[0].value has 4097 characters, but must have from 0 to 4096 characters",
        ),
        (
            {"router": {"handleTTLSeconds": 460}},
            "spec.router.handleTTLSeconds is 460, but must be at most 450, which is "
            "spec.kvTransfer.decodeTTLSeconds - 30: a turn may wait at P, and P declines a handle "
            "in its last 5 seconds",
        ),
        (
            {"decode": {"args": ["--seed=1", "--block-size", "16"]}},
            "spec.decode.args must not set --block-size: the operator renders it for both roles "
            "from spec.model, spec.kvTransfer and the role",
        ),
        (
            {"placement": {"nodeSelector": {"topology.kubernetes.io/zone": "b"}}},
            "spec.placement.nodeSelector has topology.kubernetes.io/zone b, but "
            "spec.placement.zone is us-east-2a; leave the label out of nodeSelector",
        ),
        (
            {
                "engine": {
                    "env": [{"name": "A", "value": "x", "secretKeyRef": {"name": "s", "key": "k"}}]
                }
            },
            "spec.engine.env[0]: an entry of env has either value or secretKeyRef, not both",
        ),
        (
            {"decode": {"args": ["--seed=1", "--a=$(KV)\x1b\x9b\n"]}},
            'spec.decode.args must not contain $(, as "--a=$(KV)\\u001b\\x9b\\n" does: Kubernetes '
            "would replace $(NAME) by the value of that variable; write the value itself, or use "
            "env for what vLLM reads from its environment",
        ),
        (
            {"model": {"revision": "$(REV)"}},
            "spec.model.revision must not contain $(: Kubernetes would replace $(NAME) by the "
            "value of that variable; write the value itself",
        ),
        (
            {"prefill": {"args": ["--tp=\x1b[2J\u2028"]}},
            "spec.prefill.args must not set --tp=\\x1b[2J\\u2028: the operator renders it for both "
            "roles from spec.model, spec.kvTransfer and the role",
        ),
        (
            {"placement": {"nodeSelector": {"pool": "a", "A b": "c"}}},
            'spec.placement.nodeSelector has the key "A b", which is no label key: up to 63 '
            "letters, digits, dashes, dots and underscores, with a letter or digit at both ends, "
            "after a DNS name and / or without",
        ),
        (
            {"model": {"name": "\ud800"}},
            'spec.model.name is "\\ud800", but must be text without half of a surrogate pair',
        ),
        (
            {"placement": {"nodeSelector": {7: "a"}}},
            "spec.placement.nodeSelector[7] is 7, but must be text, in quotes if it looks like a "
            "number",
        ),
        (
            {"engine": {"version": "v" * 100}},
            "spec.engine.version has 100 characters, but must have from 0 to 32 characters",
        ),
        (
            {"engine": {"pullPolicy": "x" * 100}},
            f'spec.engine.pullPolicy is "{"x" * 59}..., but must be one of "Always", '
            '"IfNotPresent", "Never"',
        ),
    ],
)
def test_a_fault_is_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    assert sentences(raw_pair(changes)) == [sentence]


def test_every_fault_is_told_at_once() -> None:
    faults = parse(
        raw_pair({"prefill": {"gpus": 2, "args": ["--tp=2"]}, "suspend": 1}, name="No_Name")
    )
    assert isinstance(faults, list)
    assert [fault.path for fault in faults] == [
        "metadata.name",
        "spec.prefill.args",
        "spec.prefill.gpus",
        "spec.suspend",
    ]


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (
            {**raw_pair(), "apiVersion": "disaggpair.dev/v1"},
            'apiVersion is "disaggpair.dev/v1", but must be disaggpair.dev/v1alpha1',
        ),
        ({**raw_pair(), "kind": "Pair"}, 'kind is "Pair", but must be DisaggPair'),
        ({**raw_pair(), "metadata": []}, "metadata is [], but must be a mapping"),
        (
            {**raw_pair(namespace="a" * 64)},
            f'metadata.namespace is "{"a" * 59}..., but must be up to 63 lower-case letters, '
            "digits and dashes, with a letter or digit at both ends",
        ),
        ({**raw_pair(), "spec": None}, "spec is required and must be a mapping"),
        (
            {**raw_pair(), "metadata": {}},
            "metadata.name is missing, but must be up to 253 lower-case letters, digits, dashes "
            "and dots, with a letter or digit at both ends of each part",
        ),
    ],
)
def test_the_head_of_an_object_is_checked(raw: dict[str, Any], sentence: str) -> None:
    assert sentences(raw) == [sentence]


def test_an_empty_object_lacks_everything() -> None:
    faults = parse({})
    assert isinstance(faults, list)
    assert [fault.path for fault in faults] == ["apiVersion", "kind", "metadata.name", "spec"]


def test_nulls_and_whole_floats_are_read_as_the_server_stores_them() -> None:
    raw = raw_pair(
        {"prefill": {"replicas": 2.0, "gpus": None}, "kvTransfer": None, "suspend": None}
    )
    assert parse(raw) == pair({"prefill": {"replicas": 2}})


@pytest.mark.parametrize("metadata", [{"namespace": None}, {"namespace": ""}, {}])
def test_a_namespace_left_out_is_no_fault(metadata: dict[str, Any]) -> None:
    assert parse({**raw_pair(), "metadata": {"name": "chat", **metadata}}) == pair()


def test_of_very_many_faults_the_first_hundred_are_told() -> None:
    assert len(sentences(raw_pair({f"f{i}": 1 for i in range(1000)}))) == 100


def test_any_mapping_is_read() -> None:
    raw = raw_pair()
    frozen = MappingProxyType({**raw, "spec": MappingProxyType(raw["spec"])})
    assert parse(frozen) == pair()


def test_a_status_is_read_without_the_fields_of_another_version() -> None:
    parsed = parse({**raw_pair(), "status": {"revision": "abc", "later": 1, "roles": {"x": 1}}})
    assert isinstance(parsed, DisaggPair)
    assert parsed.status == Status(revision="abc")


@pytest.mark.parametrize("status", [{"revision": 7}, [], "gone", None])
def test_an_unreadable_status_counts_as_none(status: object) -> None:
    parsed = parse({**raw_pair(), "status": status})
    assert isinstance(parsed, DisaggPair)
    assert parsed.status == Status()


def test_a_fault_is_printed_as_its_sentence() -> None:
    assert str(Fault("spec.suspend", "spec.suspend is 1")) == "spec.suspend is 1"


def test_an_error_without_words_of_ours_keeps_its_own() -> None:
    with pytest.raises(ValidationError) as error:
        TypeAdapter(dict[str, float]).validate_python({"spec": "x"})
    assert [str(fault) for fault in faults_of(error.value, {})] == [
        "spec: Input should be a valid number, unable to parse string as a number"
    ]
