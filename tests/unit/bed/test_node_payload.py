import base64
from typing import Any

import pytest

from disaggpair_bed.node.downward import Placement
from disaggpair_bed.node.env import Sources
from disaggpair_bed.node.errors import MissingReference
from disaggpair_bed.node.payload import (
    File,
    TokenRequest,
    render,
    token_requests,
    volume_references,
)
from disaggpair_bed.node.spec import parse_pod

POD = parse_pod(
    {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"b": "2", "a": '"1"'}},
        "spec": {
            "containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "2"}}}]
        },
    }
)
PLACE = Placement("n1", "127.11.0.2", "127.11.0.1", {}, "127.0.0.1", "6443")
SOURCES = Sources(
    {"cm": {"data": {"a": "1", "b": "2"}, "binaryData": {"c": base64.b64encode(b"\xff").decode()}}},
    {"s": {"data": {"k": base64.b64encode(b"v").decode()}}},
)


def rendered(volume: dict[str, Any], **tokens: str) -> dict[str, File]:
    requests = {request: tokens["token"] for request in token_requests(volume)}
    return render(volume, POD, PLACE, SOURCES, requests)


def test_a_config_map_gives_a_file_per_key() -> None:
    assert rendered({"name": "v", "configMap": {"name": "cm"}}) == {
        "a": File(b"1", 0o644),
        "b": File(b"2", 0o644),
        "c": File(b"\xff", 0o644),
    }


def test_items_choose_keys_paths_and_modes() -> None:
    items = [{"key": "a", "path": "sub/x", "mode": 0o400}, {"key": "b", "path": "y"}]
    volume = {"name": "v", "configMap": {"name": "cm", "items": items, "defaultMode": 0o600}}
    assert rendered(volume) == {"sub/x": File(b"1", 0o400), "y": File(b"2", 0o600)}


def test_a_secret_is_named_by_secret_name() -> None:
    assert rendered({"name": "v", "secret": {"secretName": "s"}}) == {"k": File(b"v", 0o644)}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"name": "none"}, "configmap 'none' not found"),
        ({"name": "cm", "items": [{"key": "q", "path": "q"}]}, "references non-existent key 'q'"),
    ],
)
def test_what_is_missing_is_named(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(MissingReference, match=message):
        rendered({"name": "v", "configMap": spec})
    assert rendered({"name": "v", "configMap": {**spec, "optional": True}}) == {}


def test_the_downward_api_gives_labels_sorted_and_quoted() -> None:
    items = [
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {"path": "cpu", "resourceFieldRef": {"containerName": "c", "resource": "limits.cpu"}},
    ]
    assert rendered({"name": "v", "downwardAPI": {"items": items}}) == {
        "labels": File(b'a="\\"1\\""\nb="2"', 0o644),
        "cpu": File(b"2", 0o644),
    }


def test_a_projected_volume_joins_its_sources_with_the_token() -> None:
    volume = {
        "name": "v",
        "projected": {
            "defaultMode": 0o640,
            "sources": [
                {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
                {"configMap": {"name": "cm", "items": [{"key": "a", "path": "ca.crt"}]}},
                {
                    "downwardAPI": {
                        "items": [{"path": "ns", "fieldRef": {"fieldPath": "metadata.namespace"}}]
                    }
                },
            ],
        },
    }
    assert token_requests(volume) == [TokenRequest("", 3607, "token")]
    assert list(volume_references(volume)) == [("ConfigMap", "cm")]
    assert rendered(volume, token="t") == {
        "token": File(b"t", 0o600),
        "ca.crt": File(b"1", 0o640),
        "ns": File(b"ns", 0o640),
    }
