import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from disaggpair_bed.node.api import Api, Change
from disaggpair_bed.node.errors import ApiError, ConfigError


def pod(name: str, version: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(version)}}


class Script:
    """Serves lists and watches from two scripts, and remembers what it was asked."""

    def __init__(self) -> None:
        self.lists: list[list[dict[str, Any]]] = []
        self.watches: list[list[dict[str, Any]]] = []
        self.versions: list[str] = []
        self.headers: list[dict[str, str]] = []

    async def pods(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(dict(request.headers))
        if "watch" not in request.query:
            body = {"metadata": {"resourceVersion": "10"}, "items": self.lists.pop(0)}
            return web.json_response(body)
        self.versions.append(request.query["resourceVersion"])
        response = web.StreamResponse()
        await response.prepare(request)
        for event in self.watches.pop(0):
            text = json.dumps(event).encode() + b"\n"
            # In two pieces: a line may arrive in several reads.
            await response.write(text[:7])
            await response.write(text[7:])
        return response


@pytest.fixture
async def script() -> Script:
    return Script()


@pytest.fixture
async def url(script: Script) -> AsyncIterator[str]:
    async def refuse(request: web.Request) -> web.Response:
        return web.json_response({"message": "no such pod"}, status=404)

    app = web.Application()
    app.router.add_get("/pods", script.pods)
    app.router.add_get("/pods/none", refuse)
    async with TestServer(app) as server:
        yield str(server.make_url(""))


@pytest.fixture
async def api(url: str) -> AsyncIterator[Api]:
    api = Api(url, ssl.create_default_context(), [])
    yield api
    await api.aclose()


async def followed(api: Api, count: int) -> list[tuple[str, list[str]]]:
    changes: list[Change] = []
    async for change in api.follow("/pods", "fieldSelector=x"):
        changes.append(change)
        if len(changes) == count:
            break
    return [(c.type, [item["metadata"]["name"] for item in c.items]) for c in changes]


async def test_following_goes_on_from_the_last_version_seen(api: Api, script: Script) -> None:
    script.lists = [[pod("a", 1)]]
    script.watches = [
        [
            {"type": "ADDED", "object": pod("b", 11)},
            {"type": "BOOKMARK", "object": pod("", 15)},
        ],
        [{"type": "DELETED", "object": pod("a", 16)}],
    ]
    assert await followed(api, 3) == [("SYNC", ["a"]), ("ADDED", ["b"]), ("DELETED", ["a"])]
    assert script.versions == ["10", "15"]


async def test_a_version_too_old_leads_to_a_new_list(api: Api, script: Script) -> None:
    script.lists = [[pod("a", 1)], [pod("c", 2)]]
    script.watches = [[{"type": "ERROR", "object": {"code": 410, "message": "too old"}}]]
    assert await followed(api, 2) == [("SYNC", ["a"]), ("SYNC", ["c"])]


async def test_a_refusal_carries_status_and_message(api: Api) -> None:
    with pytest.raises(ApiError, match="404: no such pod") as caught:
        await api.get("/pods/none")
    assert caught.value.status == 404


async def test_no_server_is_an_error_without_status() -> None:
    api = Api("http://127.0.0.1:1", ssl.create_default_context(), [])
    with pytest.raises(ApiError, match=r"no answer from http://127.0.0.1:1") as caught:
        await api.get("/pods")
    assert caught.value.status == 0
    await api.aclose()


async def test_a_kubeconfig_says_who_to_be(url: str, script: Script, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    user = {"token": "t", "as": "system:node:n1", "as-groups": ["system:nodes"]}
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
                "clusters": [{"name": "k", "cluster": {"server": url}}],
                "users": [{"name": "u", "user": user}],
            }
        )
    )
    api = Api.from_kubeconfig(path)
    script.lists = [[]]
    await api.get("/pods")
    await api.aclose()
    (headers,) = script.headers
    assert headers["Authorization"] == "Bearer t"
    assert headers["Impersonate-User"] == "system:node:n1"
    assert headers["Impersonate-Group"] == "system:nodes"


def test_a_broken_kubeconfig_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("{}")
    with pytest.raises(ConfigError, match="is not a usable kubeconfig"):
        Api.from_kubeconfig(path)
