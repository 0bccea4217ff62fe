"""A process node of its own for tests: quick to restart containers, free to be killed.

Its pods name it in `nodeName`; the scheduler leaves it alone, because it offers room for no pod.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import yaml

from disaggpair_bed.cluster import Cluster
from disaggpair_bed.controlplane.addresses import LoopbackPrefix
from disaggpair_bed.node.api import STRATEGIC, Api
from disaggpair_bed.processes import Process

TOOL = "bench/tool:1"
"""An image with nothing but the machine's own programs."""

PATIENCE_S = 60.0
"""Bound of every wait: a failed test ends, and a slow machine passes."""

Object = dict[str, Any]


class NodeBench:
    """One node process with one node, on a cluster that runs."""

    def __init__(self, cluster: Cluster, directory: Path, **settings: Any) -> None:
        self.name = f"bench-{uuid4().hex[:6]}"
        self.directory = directory
        self.images = directory / "images.yaml"
        self._cluster = cluster
        self._prefix = LoopbackPrefix()
        self._process: Process | None = None
        directory.mkdir(parents=True, exist_ok=True)
        self.images.write_text(yaml.safe_dump({"images": {TOOL: {}}}))
        node = {
            "name": self.name,
            "kubeconfig": str(self._kubeconfig()),
            "address": f"{self._prefix.text}.0.1",
            "podPrefix": f"{self._prefix.text}.0",
            "zone": "us-east-2a",
            "instanceType": "bench",
            "pods": 0,
            "gpus": 8,
            "efa": 16,
            "hollow": settings.pop("hollow", False),
        }
        config = {
            "runDir": str(directory / "pods"),
            "images": str(self.images),
            "backoffSeconds": 0.2,
            "refreshSeconds": 1,
            **settings,
            "nodes": [node],
        }
        (directory / "nodes.yaml").write_text(yaml.safe_dump(config))

    @property
    def pid(self) -> int:
        """The node process."""
        assert self._process is not None
        assert self._process.pid is not None
        return self._process.pid

    def start(self) -> None:
        """Start the node process."""
        command: list[str | Path] = [sys.executable, "-m", "disaggpair_bed.cli", "nodes"]
        command += ["--config", self.directory / "nodes.yaml"]
        self._process = Process("bench node", command, self.directory / "log", patience_s=20)
        self._process.start()

    def stop(self) -> None:
        """SIGTERM, and wait for its end."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def kill(self) -> None:
        """SIGKILL, as when a machine loses power."""
        os.kill(self.pid, 9)
        self.stop()

    def wait_for_log(self, text: str) -> None:
        """Block until the node process has logged something."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in (self.directory / "log").read_text():
            if time.monotonic() > deadline:
                raise AssertionError(f"{text!r} is not in {self.directory / 'log'}")
            time.sleep(0.2)

    def close(self) -> None:
        """Stop it and take its Node object away."""
        self.stop()
        self._cluster.kubectl("delete", "node", self.name, "--ignore-not-found")
        self._prefix.release()

    def pod(self, name: str, *containers: Object, **spec: Any) -> Object:
        """A pod for this node; containers get a name and the tool image unless they have one."""
        meta = spec.pop("metadata", {})
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, **meta},
            "spec": {
                "nodeName": self.name,
                "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "main", "image": TOOL, **item} for item in containers],
                **spec,
            },
        }

    def _kubeconfig(self) -> Path:
        """The administrator's, acting as this node: the Node authorizer bounds it all the same."""
        raw = yaml.safe_load(self._cluster.kubeconfig.read_text())
        for entry in raw["users"]:
            entry["user"] |= {"as": f"system:node:{self.name}", "as-groups": ["system:nodes"]}
        path = self.directory / "node.kubeconfig"
        path.write_text(yaml.safe_dump(raw))
        return path


class Watcher:
    """Objects of one namespace: made, and waited for by watching."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api, self.namespace = api, namespace

    async def create(self, obj: Object) -> Object:
        """Create a pod, ConfigMap, Secret or Service account of the namespace."""
        return await self.api.create(self._path(obj["kind"].lower() + "s"), obj)

    async def patch(self, kind: str, name: str, patch: Mapping[str, Any]) -> Object:
        """Change an object."""
        return await self.api.patch(f"{self._path(kind)}/{name}", patch, STRATEGIC)

    async def annotate(self, name: str, key: str, value: str | None) -> Object:
        """Set or remove an annotation of a pod."""
        return await self.patch("pods", name, {"metadata": {"annotations": {key: value}}})

    async def delete(self, name: str, **options: Any) -> None:
        """Ask for the end of a pod."""
        await self.api.delete(f"{self._path('pods')}/{name}", options)

    async def pod_when(self, name: str, is_so: Callable[[Object], object]) -> Object:
        """The pod as it is when the condition holds for the first time."""
        last: Object = {}
        try:
            async with asyncio.timeout(PATIENCE_S):
                query = f"fieldSelector=metadata.name={name}"
                async for change in self.api.follow(self._path("pods"), query):
                    for pod in change.items:
                        last = dict(pod)
                        if change.type != "DELETED" and is_so(last):
                            return last
        except TimeoutError:
            raise AssertionError(f"{name} stays {last.get('status')}") from None
        raise AssertionError

    async def gone(self, name: str) -> Object:
        """Wait until the pod is deleted; its last state."""
        last: Object = {}
        async with asyncio.timeout(PATIENCE_S):
            query = f"fieldSelector=metadata.name={name}"
            async for change in self.api.follow(self._path("pods"), query):
                if change.type == "DELETED":
                    return dict(change.items[0])
                if change.type == "SYNC" and not change.items:
                    return last
                last = dict(change.items[0]) if change.items else last
        raise AssertionError

    def _path(self, kind: str) -> str:
        return f"/api/v1/namespaces/{self.namespace}/{kind}"


def ready(pod: Object) -> bool:
    """Whether the pod is Ready."""
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def container(pod: Object, name: str = "main", kind: str = "containerStatuses") -> Object:
    """The status of one container; empty before the node reported it."""
    statuses = pod.get("status", {}).get(kind) or ()
    return next((dict(item) for item in statuses if item["name"] == name), {})


def waiting(pod: Object, name: str = "main") -> str:
    """Why a container waits, or nothing."""
    state = container(pod, name).get("state") or {}
    return str((state.get("waiting") or {}).get("reason", ""))


def ended(pod: Object, name: str = "main", kind: str = "containerStatuses") -> Object:
    """How a container ended, or nothing."""
    return dict((container(pod, name, kind).get("state") or {}).get("terminated") or {})
