"""The adapter on the wire: requests as an API server on loopback sees them, and its answers."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from disaggpair_bed.builders import raw_pair
from disaggpair_operator.cluster import (
    ClusterError,
    Conflict,
    Forbidden,
    Rejected,
    Unavailable,
)
from disaggpair_operator.errors import NoCredentials
from disaggpair_operator.keys import Key
from disaggpair_operator.kube import KubeCluster, connect
from disaggpair_operator.model import Ref, SecretView

DEPLOYMENT = Ref("apps/v1", "Deployment", "default", "chat-prefill")
SECRET = Ref("v1", "Secret", "default", "chat-keys")
PAIR = Key("default", "chat").ref


class Api:
    """Answers every request alike and keeps what was asked."""

    def __init__(self) -> None:
        self.status = 200
        self.body: Any = {}
        self.requests: list[tuple[str, str, dict[str, str], Any]] = []
        self.headers: list[Mapping[str, str]] = []

    async def answer(self, request: web.Request) -> web.Response:
        text = await request.text()
        self.requests.append(
            (request.method, request.path, dict(request.query), json.loads(text) if text else None)
        )
        self.headers.append(request.headers)
        if isinstance(self.body, str):
            return web.Response(status=self.status, text=self.body)
        return web.json_response(self.body, status=self.status)


def write_kubeconfig(path: Path, server: str, **user: Any) -> str:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user or {"token": "secret-token"}}],
    }
    return write_text(path, yaml.safe_dump(config))


def write_text(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
async def cluster(api: Api, tmp_path: Path) -> AsyncIterator[KubeCluster]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", api.answer)
    async with TestServer(app) as server:
        url = str(server.make_url("")).rstrip("/")
        async with connect(write_kubeconfig(tmp_path / "config", url)) as connection:
            yield connection


async def test_an_object_is_read_by_its_path(cluster: KubeCluster, api: Api) -> None:
    api.body = {"kind": "Deployment"}
    assert await cluster.get(DEPLOYMENT) == api.body
    assert await cluster.get(Ref("v1", "Node", "", "n1")) == api.body
    assert [request[:2] for request in api.requests] == [
        ("GET", "/apis/apps/v1/namespaces/default/deployments/chat-prefill"),
        ("GET", "/api/v1/nodes/n1"),
    ]
    assert api.headers[0]["Authorization"] == "Bearer secret-token"


async def test_listed_objects_say_what_they_are(cluster: KubeCluster, api: Api) -> None:
    api.body = {"kind": "PodList", "items": [{"metadata": {"name": "p"}}]}
    assert await cluster.list("v1", "Pod", "default", "disaggpair.dev/pair=chat") == [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    ]
    assert await cluster.list("v1", "Pod")
    assert [request[1:3] for request in api.requests] == [
        ("/api/v1/namespaces/default/pods", {"labelSelector": "disaggpair.dev/pair=chat"}),
        ("/api/v1/pods", {}),
    ]


async def test_an_empty_list_may_have_null_items(cluster: KubeCluster, api: Api) -> None:
    api.body = {"kind": "PodList", "items": None}
    assert await cluster.list("v1", "Pod") == []


async def test_apply_is_server_side_and_takes_over_fields(cluster: KubeCluster, api: Api) -> None:
    api.body = {"metadata": {"resourceVersion": "7"}}
    pair = raw_pair()
    assert await cluster.apply(pair) == api.body
    assert api.requests == [
        (
            "PATCH",
            "/apis/disaggpair.dev/v1alpha1/namespaces/default/disaggpairs/chat",
            {"fieldManager": "disaggpair-operator", "force": "true"},
            pair,
        )
    ]
    assert api.headers[0]["Content-Type"] == "application/apply-patch+yaml"


async def test_a_deletion_names_the_uid_and_leaves_the_rest_to_the_collector(
    cluster: KubeCluster, api: Api
) -> None:
    await cluster.delete(DEPLOYMENT, "u-1")
    assert api.requests == [
        (
            "DELETE",
            "/apis/apps/v1/namespaces/default/deployments/chat-prefill",
            {},
            {"preconditions": {"uid": "u-1"}, "propagationPolicy": "Background"},
        )
    ]


async def test_a_status_is_applied_to_the_subresource_alone(cluster: KubeCluster, api: Api) -> None:
    await cluster.patch_status(PAIR, {"observedGeneration": 3, "conditions": ()})
    ((method, path, query, body),) = api.requests
    assert (method, query["fieldManager"]) == ("PATCH", "disaggpair-operator")
    assert path.endswith("/namespaces/default/disaggpairs/chat/status")
    assert body == {
        "apiVersion": "disaggpair.dev/v1alpha1",
        "kind": "DisaggPair",
        "metadata": {"name": "chat", "namespace": "default"},
        "status": {"observedGeneration": 3, "conditions": []},
    }


async def test_of_a_secret_only_the_names_of_filled_keys_are_kept(
    cluster: KubeCluster, api: Api
) -> None:
    metadata = {"name": "chat-keys", "resourceVersion": "7"}
    api.body = {"kind": "Secret", "metadata": metadata, "data": {"a": "c2VjcmV0", "b": ""}}
    seen = await cluster.look_at_secret(SECRET)
    assert seen == SecretView({"kind": "Secret", "metadata": metadata}, frozenset({"a"}))
    assert "c2VjcmV0" not in repr(seen)
    api.body = {"kind": "Secret", "metadata": metadata}
    assert await cluster.look_at_secret(SECRET) == SecretView(api.body, frozenset())
    api.status, api.body = 404, {"kind": "Status", "message": "not found"}
    assert await cluster.look_at_secret(SECRET) is None
    assert {request[:2] for request in api.requests} == {
        ("GET", "/api/v1/namespaces/default/secrets/chat-keys")
    }


async def test_a_secret_is_created_or_filled_and_not_sent_back(
    cluster: KubeCluster, api: Api
) -> None:
    metadata = {"name": "chat-keys", "namespace": "default"}
    new = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"a": "eA=="}}
    there = {**new, "metadata": {**metadata, "uid": "u-1", "resourceVersion": "7"}}
    await cluster.write_secret(new)
    await cluster.write_secret(there)
    manager = {"fieldManager": "disaggpair-operator"}
    folder = "/api/v1/namespaces/default/secrets"
    assert api.requests == [
        ("POST", folder, manager, new),
        ("PATCH", f"{folder}/chat-keys", manager, there),
    ]
    assert [headers["Content-Type"] for headers in api.headers] == [
        "application/json",
        "application/merge-patch+json",
    ]
    assert {headers["Accept"] for headers in api.headers} == {
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    }


async def test_a_secret_is_read_and_written_in_no_other_way(cluster: KubeCluster, api: Api) -> None:
    with pytest.raises(Rejected):
        await cluster.get(SECRET)
    with pytest.raises(Rejected):
        await cluster.list("v1", "Secret", "default")
    assert api.requests == []


async def test_a_missing_object_is_an_answer_where_that_makes_sense(
    cluster: KubeCluster, api: Api
) -> None:
    api.status, api.body = 404, {"kind": "Status", "message": "not found"}
    assert await cluster.get(DEPLOYMENT) is None
    assert await cluster.patch_status(PAIR, {}) is None
    await cluster.delete(DEPLOYMENT, "u-1")
    with pytest.raises(Rejected, match="could not list DisaggPair: not found"):
        await cluster.list(PAIR.api_version, PAIR.kind)
    with pytest.raises(Rejected, match="could not apply DisaggPair default/chat: not found"):
        await cluster.apply(raw_pair())


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, Rejected),
        (422, Rejected),
        (401, Forbidden),
        (403, Forbidden),
        (409, Conflict),
        (410, Unavailable),
        (429, Unavailable),
        (500, Unavailable),
        (504, Unavailable),
    ],
)
async def test_an_error_keeps_the_api_servers_sentence(
    cluster: KubeCluster, api: Api, status: int, error: type[ClusterError]
) -> None:
    api.status, api.body = status, {"kind": "Status", "message": "because of this"}
    with pytest.raises(error) as caught:
        await cluster.apply(raw_pair())
    assert type(caught.value) is error
    assert str(caught.value) == "could not apply DisaggPair default/chat: because of this"


@pytest.mark.parametrize("body", ["<html>secret</html>", {"kind": "Secret", "message": "secret"}])
async def test_a_body_that_is_no_status_is_not_repeated(
    cluster: KubeCluster, api: Api, body: Any
) -> None:
    api.status, api.body = 502, body
    with pytest.raises(Unavailable) as caught:
        await cluster.get(DEPLOYMENT)
    assert str(caught.value) == "could not read Deployment default/chat-prefill: HTTP 502"


async def test_a_long_message_is_cut(cluster: KubeCluster, api: Api) -> None:
    api.status, api.body = 422, {"kind": "Status", "message": "x" * 5000}
    with pytest.raises(Rejected) as caught:
        await cluster.apply(raw_pair())
    assert len(str(caught.value)) < 1100


async def test_a_kind_outside_the_table_is_refused_before_a_request(
    cluster: KubeCluster, api: Api
) -> None:
    with pytest.raises(Rejected, match="batch/v1 Job is not a kind this operator handles"):
        await cluster.get(Ref("batch/v1", "Job", "default", "j"))
    assert api.requests == []


async def test_a_server_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    config = write_kubeconfig(tmp_path / "config", "http://127.0.0.1:1")
    async with connect(config) as cluster:
        with pytest.raises(Unavailable, match="could not read DisaggPair default/chat: "):
            await cluster.get(PAIR)


async def test_credentials_are_handed_on_but_never_shown(cluster: KubeCluster) -> None:
    credentials = await cluster.credentials()
    assert credentials.authorization == "Bearer secret-token"
    assert credentials.server.startswith("http://127.0.0.1:")
    assert "secret-token" not in repr(credentials)


async def test_a_sign_in_plug_in_is_asked_for_a_new_token(tmp_path: Path) -> None:
    count = tmp_path / "count"
    answer = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "token-N"},
    }
    script = f"echo >> {count}; echo '{json.dumps(answer)}' | sed s/N/$(wc -l < {count})/"
    plug_in = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "sh",
        "args": ["-c", script],
        "interactiveMode": "Never",
    }
    path = write_kubeconfig(tmp_path / "config", "http://there:1", exec=plug_in)
    async with connect(path, refresh_s=0.01) as cluster, asyncio.timeout(20):
        first = (await cluster.credentials()).authorization
        assert first == "Bearer token-1"
        while (await cluster.credentials()).authorization == first:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.01)


async def test_a_missing_kubeconfig_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / "none")
    with pytest.raises(NoCredentials, match=f"there is no kubeconfig {path}: "):
        async with connect(path):
            pass


async def test_outside_of_a_pod_the_home_folders_kubeconfig_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(NoCredentials, match=f"there is no kubeconfig {tmp_path}/.kube/config: "):
        async with connect():
            pass


async def test_a_broken_kubeconfig_is_named(tmp_path: Path) -> None:
    broken = write_text(tmp_path / "config", "contexts: []")
    with pytest.raises(NoCredentials, match=f"cannot connect with the kubeconfig {broken}: "):
        async with connect(broken):
            pass


async def test_a_kubeconfig_comes_before_the_service_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBECONFIG", write_kubeconfig(tmp_path / "config", "http://there:1"))
    async with connect() as cluster:
        assert (await cluster.credentials()).server == "http://there:1"


async def test_a_pod_without_a_token_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(NoCredentials, match="service account of this pod"):
        async with connect():
            pass
