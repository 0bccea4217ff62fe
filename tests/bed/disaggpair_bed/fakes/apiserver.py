"""The cluster in memory behind HTTP: discovery, lists, watches and apply, as informers use them.

For tests of what talks to an API server by itself. A watch tells of every object once and then
of each change; it has no history.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from disaggpair_bed.fakes.cluster import FakeCluster
from disaggpair_operator import kinds
from disaggpair_operator.kinds import Kind
from disaggpair_operator.model import Object, Ref

_META = (
    Kind("v1", "Namespace", "namespaces", namespaced=False),
    Kind("v1", "Event", "events"),
    Kind(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        namespaced=False,
    ),
)
_ALL = (kinds.PAIR, kinds.POD, kinds.NODE, kinds.SECRET, *kinds.CHILDREN, *_META)


class FakeApiServer:
    """Serves one FakeCluster on loopback while `serving`."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.url = ""
        self.refused: set[str] = set()
        """Plurals that the server answers 404 for, as when their definition was removed."""
        self._cluster = cluster
        self._changed = asyncio.Condition()
        self._app = web.Application()
        self._app.router.add_route("*", "/{path:.*}", self._answer)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Answer requests until the end of the block."""
        server = TestServer(self._app)
        await server.start_server(shutdown_timeout=0.1)
        self.url = str(server.make_url("")).rstrip("/")
        try:
            yield
        finally:
            await server.close()

    async def tell(self) -> None:
        """Make the watches look at the cluster again, after a change behind the server's back."""
        async with self._changed:
            self._changed.notify_all()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        parts = request.path.strip("/").split("/")
        found = _discovery(parts)
        if found is not None:
            return web.json_response(found)
        api_version = parts[1] if parts[0] == "api" else "/".join(parts[1:3])
        rest = parts[2:] if parts[0] == "api" else parts[3:]
        namespace = rest[1] if rest[0] == "namespaces" and len(rest) > 2 else ""
        plural, *name = rest[2:] if namespace else rest
        kind = next(k for k in _ALL if (k.api_version, k.plural) == (api_version, plural))
        if plural in self.refused:
            return _status(404, "the server could not find the requested resource")
        if request.method == "PATCH":
            return await self._patch(request, kind, namespace, name)
        if request.method == "POST":
            await self._cluster.write_secret(await request.json())
            return web.json_response({})
        if name:
            obj = await self._cluster.get(Ref(api_version, kind.kind, namespace, name[0]))
            return web.json_response(obj) if obj else _status(404, "not found")
        if request.query.get("watch"):
            return await self._watch(request, kind, namespace)
        items = await self._cluster.list(api_version, kind.kind, namespace)
        meta = {"resourceVersion": "1"}
        return web.json_response(
            {
                "kind": f"{kind.kind}List",
                "apiVersion": api_version,
                "metadata": meta,
                "items": items,
            }
        )

    async def _patch(
        self, request: web.Request, kind: Kind, namespace: str, name: list[str]
    ) -> web.Response:
        body = await request.json()
        obj: Object | None
        if name[1:] == ["status"]:
            ref = Ref(kind.api_version, kind.kind, namespace, name[0])
            obj = await self._cluster.patch_status(ref, body["status"])
        else:
            obj = await self._cluster.apply(body)
        await self.tell()
        return web.json_response(obj) if obj else _status(404, "not found")

    async def _watch(self, request: web.Request, kind: Kind, namespace: str) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        told: dict[Ref, str] = {}
        with suppress(ConnectionResetError):
            async with self._changed:
                while kind.plural not in self.refused:
                    for event in self._news(kind, namespace, told):
                        await response.write(json.dumps(event).encode() + b"\n")
                    await self._changed.wait()
        return response

    def _news(self, kind: Kind, namespace: str, told: dict[Ref, str]) -> list[dict[str, Any]]:
        events = []
        for ref in self._cluster.refs(kind.kind):
            obj = self._cluster.take(ref)
            if obj is None or (namespace and ref.namespace != namespace):
                continue
            version = obj["metadata"]["resourceVersion"]
            if told.get(ref) != version:
                events.append({"type": "MODIFIED" if ref in told else "ADDED", "object": obj})
                told[ref] = version
        return events


def _discovery(parts: list[str]) -> dict[str, Any] | None:
    if parts == ["api"]:
        return {"kind": "APIVersions", "versions": ["v1"]}
    if parts == ["apis"]:
        return {"kind": "APIGroupList", "groups": [_group(g) for g in _groups()]}
    if len(parts) == (2 if parts[0] == "api" else 3):
        api_version = "/".join(parts[1:])
        return {"kind": "APIResourceList", "resources": [*_resources(api_version)]}
    return None


def _groups() -> list[str]:
    return sorted({kind.api_version for kind in _ALL if kind.group})


def _group(api_version: str) -> dict[str, Any]:
    group, _, version = api_version.partition("/")
    entry = {"groupVersion": api_version, "version": version}
    return {"name": group, "versions": [entry], "preferredVersion": entry}


def _resources(api_version: str) -> list[dict[str, Any]]:
    return [
        {
            "name": kind.plural,
            "singularName": kind.kind.lower(),
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": ["get", "list", "watch", "patch"],
        }
        for kind in _ALL
        if kind.api_version == api_version
    ]


def _status(code: int, message: str) -> web.Response:
    body = {"kind": "Status", "code": code, "message": message}
    return web.json_response(body, status=code)
