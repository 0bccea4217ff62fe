"""Engines found by watching the pods of a pair. The only module that imports Kubernetes.

While the API server is away the last known endpoints stay: engines go on working without it, and
one that does not answer is left alone by `endpoints`.
"""

import asyncio
import logging
import os
import random
from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

import aiohttp
import orjson
from kubernetes.aio import client, config

from disaggpair_router.config import PodEndpoints
from disaggpair_router.endpoints import Endpoints
from disaggpair_router.podview import PAIR_LABEL, endpoint_of
from disaggpair_router.readiness import Readiness

logger = logging.getLogger(__name__)

_WATCH_S = 60
"""Length of one watch. A connection that died silently is noticed after this and the grace."""
_GRACE_S = 10
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.2, 10.0
_GONE = 410
_UNREADY_POD = "its pod is not ready"
_GONE_POD = "its pod ends or has ended"

Object = Mapping[str, Any]


class WatchFailed(Exception):
    """The API server did not serve a request; `status` is its answer, 0 when it gave none."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Pods(Protocol):
    """What is asked of the API server."""

    async def list(self) -> Object:
        """The pod list of the pair; raises WatchFailed."""
        ...

    def watch(self, resource_version: str) -> AsyncIterator[Object]:
        """Watch events after a version, until the server ends the watch; raises WatchFailed."""
        ...


class PodSource:
    """Keeps the registry equal to the pods."""

    def __init__(self, pods: Pods, endpoints: Endpoints, port: int) -> None:
        self._pods = pods
        self._endpoints = endpoints
        self._port = port
        self._wait_s = _FIRST_WAIT_S
        self._readiness = Readiness()

    async def run(self) -> None:
        """List and watch for ever; cancel to stop."""
        while True:
            try:
                await self.follow()
            except WatchFailed as failure:
                if failure.status == _GONE:
                    continue  # the version is too old: list again at once
                logger.warning("watching pods failed: %s", failure)
                # Many routers lose the API server at the same moment.
                await asyncio.sleep(self._wait_s * random.uniform(0.5, 1.0))  # noqa: S311 - spreads retries
                self._wait_s = min(self._wait_s * 2, _LONGEST_WAIT_S)

    async def follow(self) -> None:
        """One list and the watches that continue it; ends by WatchFailed only."""
        listed = await self._pods.list()
        pods = (endpoint_of(pod, self._port) for pod in listed.get("items") or ())
        found = [endpoint for endpoint in pods if endpoint]
        self._endpoints.replace_all(found)
        self._readiness.only([endpoint.name for endpoint in found], _GONE_POD)
        for endpoint in found:
            self._readiness.tell(endpoint, _UNREADY_POD)
        version = str(listed["metadata"]["resourceVersion"])
        while True:
            async for event in self._pods.watch(version):
                version = self._take(event)
                self._wait_s = _FIRST_WAIT_S

    def _take(self, event: Object) -> str:
        """Apply one event and give back the version after it."""
        kind, pod = event["type"], event["object"]
        if kind == "ERROR":
            raise WatchFailed(int(pod.get("code", 0)), str(pod.get("message", "watch error")))
        metadata = pod["metadata"]
        if kind != "BOOKMARK":
            endpoint = None if kind == "DELETED" else endpoint_of(pod, self._port)
            if endpoint is None:
                self._endpoints.remove(metadata["uid"])
                self._readiness.gone(metadata["uid"], _GONE_POD)
            else:
                self._endpoints.put(endpoint)
                self._readiness.tell(endpoint, _UNREADY_POD)
        return str(metadata["resourceVersion"])


class ApiPods:
    """The pods of one pair at the API server, as plain JSON.

    The client's typed models cost more to build than everything a router does with a pod.
    """

    def __init__(self, api: client.CoreV1Api, namespace: str, pair: str) -> None:
        self._api = api
        self._namespace = namespace
        self._selector = f"{PAIR_LABEL}={pair}"

    async def list(self) -> Object:
        """See `Pods`."""
        async with await self._request(timeout_s=_GRACE_S) as response:
            raw = await _reading(response.read())
        listed: Object = orjson.loads(raw)
        return listed

    async def watch(self, resource_version: str) -> AsyncIterator[Object]:
        """See `Pods`."""
        async with await self._request(
            timeout_s=_WATCH_S + _GRACE_S,
            watch=True,
            resource_version=resource_version,
            timeout_seconds=_WATCH_S,
            allow_watch_bookmarks=True,
        ) as response:
            held = b""
            while chunk := await _reading(response.content.readany()):
                *lines, held = (held + chunk).split(b"\n")
                for line in filter(None, lines):
                    yield orjson.loads(line)

    async def _request(self, *, timeout_s: float, **query: Any) -> aiohttp.ClientResponse:
        response: aiohttp.ClientResponse = await _reading(
            self._api.list_namespaced_pod_without_preload_content(
                self._namespace,
                label_selector=self._selector,
                _request_timeout=timeout_s,
                **query,
            )
        )
        if response.status != 200:
            response.close()
            raise WatchFailed(response.status, f"the API server answered {response.status}")
        return response


async def watch_pods(wanted: PodEndpoints, endpoints: Endpoints) -> None:
    """Keep the registry equal to the pods of a pair, for ever."""
    if "KUBERNETES_SERVICE_HOST" in os.environ and not os.environ.get("KUBECONFIG"):
        config.load_incluster_config()
    else:
        await config.load_kube_config()
    async with client.ApiClient() as connection:
        pods = ApiPods(client.CoreV1Api(connection), wanted.namespace, wanted.pair)
        await PodSource(pods, endpoints, wanted.port).run()


async def _reading(request: Any) -> Any:
    """Await a request or a read and name its failure."""
    try:
        return await request
    except (aiohttp.ClientError, client.ApiException, TimeoutError, OSError) as error:
        raise WatchFailed(0, type(error).__name__) from error
