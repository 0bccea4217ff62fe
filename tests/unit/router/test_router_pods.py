"""The watch of pods, over a fake of the two requests it makes, and over a socket."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from kubernetes.aio import client, config

from disaggpair_bed.routing import eventually, routed
from disaggpair_router import pods, podview
from disaggpair_router.config import PodEndpoints
from disaggpair_router.endpoints import Endpoints
from disaggpair_router.metrics import Metrics
from disaggpair_router.pods import ApiPods, PodSource, WatchFailed


def pod(uid: str, version: str = "1", *, ready: bool = True, **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "uid": uid,
            "resourceVersion": version,
            "labels": {podview.ROLE_LABEL: "decode", podview.PAIR_LABEL: "p"},
            **metadata,
        },
        "status": {
            "podIP": "10.0.0.7",
            "conditions": [{"type": "Ready", "status": str(ready)}],
        },
    }


def listed(*items: Any, version: str = "5") -> dict[str, Any]:
    return {"metadata": {"resourceVersion": version}, "items": list(items)}


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "object": fields}


class FakePods:
    """Plays lists and watches in order; raises what is an exception; then ends with `Over`."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.asked: list[str] = []

    async def list(self) -> Any:
        self.asked.append("list")
        return self.next()

    async def watch(self, resource_version: str) -> AsyncIterator[Any]:
        self.asked.append(resource_version)
        events: Iterable[Any] = self.next()
        for one in events:
            yield one

    def next(self) -> Any:
        if not self.script:
            raise Over
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        return step


class Over(Exception):
    """The script is played."""


class Registry:
    def __init__(self) -> None:
        self.lost: list[tuple[str, str | None]] = []
        self.endpoints = Endpoints(
            revision="",
            single_engine=True,
            metrics=Metrics(),
            clock=lambda: 0.0,
        )
        self.endpoints.on_loss(lambda name, life: self.lost.append((name, life)))

    def ready(self) -> dict[str, bool]:
        return {one.name: one.ready for one in self.endpoints}


@pytest.fixture
def registry() -> Registry:
    return Registry()


async def played(registry: Registry, *script: Any) -> FakePods:
    fake = FakePods(*script)
    source = PodSource(fake, registry.endpoints, 8000)
    with pytest.raises(Over):
        await source.run()
    return fake


async def test_the_list_replaces_what_was_known(registry: Registry) -> None:
    await played(registry, listed(pod("a"), pod("b")), [event("ERROR", code=410)], listed(pod("b")))
    assert registry.ready() == {"b": True}
    assert registry.lost == [("a", None)]


async def test_a_watch_goes_on_where_the_last_event_was(registry: Registry) -> None:
    fake = await played(
        registry,
        listed(pod("a")),
        [event("MODIFIED", **pod("a", "6", ready=False)), event("ADDED", **pod("b", "7"))],
        [event("BOOKMARK", metadata={"resourceVersion": "9"})],
        [event("DELETED", **pod("b", "10"))],
    )
    assert fake.asked == ["list", "5", "7", "9", "10"]
    assert registry.ready() == {"a": False}
    assert registry.lost == [("b", None)]


async def test_each_change_of_a_pods_state_is_one_line(
    registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "disaggpair_router.readiness")
    await played(
        registry,
        listed(pod("a", ready=False)),
        [
            event("MODIFIED", **pod("a", "6")),
            event("MODIFIED", **pod("a", "7")),
            event("ADDED", **pod("b", "8")),
            event("DELETED", **pod("b", "9")),
            event("DELETED", **pod("b", "9")),
            event("ERROR", code=410),
        ],
        listed(),
    )
    engine = "the decode engine http://10.0.0.7:8000"
    assert [one.getMessage() for one in caplog.records] == [
        f"{engine} is not ready: its pod is not ready",
        f"{engine} is ready",
        f"{engine} is ready",
        f"{engine} is gone: its pod ends or has ended",
        f"{engine} is gone: its pod ends or has ended",
    ]


async def test_h33_a_terminating_pod_loses_its_handles_at_once(registry: Registry) -> None:
    ending = pod("a", "6", deletionTimestamp="2026-11-30T00:00:00Z")
    await played(registry, listed(pod("a")), [event("MODIFIED", **ending)])
    assert registry.ready() == {}
    assert registry.lost == [("a", None)]


async def test_an_old_version_is_listed_anew_at_once(registry: Registry) -> None:
    fake = await played(
        registry, listed(), [event("ERROR", code=410)], listed(), WatchFailed(410, "x"), listed()
    )
    assert fake.asked.count("list") == 3


async def test_other_failures_wait_longer_each_time(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr(random, "uniform", lambda _low, high: high)
    failure = WatchFailed(0, "x")
    await played(
        registry,
        *[failure] * 8,
        listed(pod("a")),
        [event("ADDED", **pod("b", "6"))],
        [event("ERROR", code=500)],
    )
    assert waits == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0, 0.2]
    assert registry.ready() == {"a": True, "b": True}


@pytest.fixture
async def api() -> AsyncIterator[tuple[ApiPods, list[Any]]]:
    """An API server that answers one list, one watch in pieces, then 410."""
    queries: list[Any] = []
    line = orjson.dumps(event("ADDED", **pod("b", "6"))) + b"\n"

    async def serve(request: web.Request) -> web.StreamResponse:
        queries.append((request.path, dict(request.query)))
        if "watch" not in request.query:
            return web.json_response(listed(pod("a")))
        if len(queries) > 2:
            return web.Response(status=410)
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in (line[:50], line[50:] + line[:9], line[9:] + b"\n"):
            await response.write(piece)
            await asyncio.sleep(0)
        return response

    app = web.Application()
    app.router.add_get("/{path:.*}", serve)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host = f"http://127.0.0.1:{runner.addresses[0][1]}"
    async with client.ApiClient(client.Configuration(host=host)) as connection:
        yield ApiPods(client.CoreV1Api(connection), "ns", "p"), queries
    await runner.cleanup()


async def test_the_api_is_asked_for_the_pairs_pods_only(
    api: tuple[ApiPods, list[Any]], registry: Registry
) -> None:
    asked, queries = api
    source = PodSource(asked, registry.endpoints, 8000)
    with pytest.raises(WatchFailed, match="answered 410"):
        await source.follow()
    assert registry.ready() == {"a": True, "b": True}
    (path, query), (_, watch), *_ = queries
    assert path == "/api/v1/namespaces/ns/pods"
    assert query == {"labelSelector": "disaggpair.dev/pair=p"}
    assert watch["resourceVersion"] == "5"
    assert watch["allowWatchBookmarks"] == "true"
    assert watch["timeoutSeconds"] == "60"


async def test_an_api_server_that_is_away_is_a_failure() -> None:
    configuration = client.Configuration(host="http://127.0.0.1:9")
    async with client.ApiClient(configuration) as connection:
        with pytest.raises(WatchFailed) as failed:
            await ApiPods(client.CoreV1Api(connection), "ns", "p").list()
    assert failed.value.status == 0


async def test_the_credentials_of_the_pod_or_of_the_user_are_used(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[str] = []

    async def user() -> None:
        used.append("user")

    async def over(_: PodSource) -> None:
        raise Over

    monkeypatch.setattr(config, "load_incluster_config", lambda: used.append("pod"))
    monkeypatch.setattr(config, "load_kube_config", user)
    monkeypatch.setattr(PodSource, "run", over)
    wanted = PodEndpoints(namespace="ns", pair="p")
    for host, file in (("10.96.0.1", ""), ("10.96.0.1", "file"), ("", "")):
        monkeypatch.setenv("KUBECONFIG", file)
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
        if not host:
            monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
        with pytest.raises(Over):
            await pods.watch_pods(wanted, registry.endpoints)
    assert used == ["pod", "user", "user"]


async def test_a_watch_that_cannot_begin_shows_in_the_health_check(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    pods = {"kind": "pods", "namespace": "ns", "pair": "p"}
    async with routed([], [], wait_ready=False, endpoints=pods) as front:

        async def is_broken() -> bool:
            return (await front.get("/healthz")).status == 503

        await eventually(is_broken)
        assert (await front.get("/readyz")).status == 503
