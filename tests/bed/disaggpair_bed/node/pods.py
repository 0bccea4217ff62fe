"""The pods bound to one node: a worker for each, driven by a watch."""

import asyncio
import logging

from disaggpair_bed.node.context import NodeContext
from disaggpair_bed.node.pod import PodWorker
from disaggpair_bed.node.spec import Object, parse_pod

logger = logging.getLogger(__name__)


class Pods:
    """All pods of a node while it is up."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._workers: dict[str, PodWorker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def find(self, namespace: str, name: str) -> PodWorker | None:
        """The worker of a pod; the younger one when a pod of that name is still ending."""
        found = None
        for worker in self._workers.values():
            if (worker.pod.namespace, worker.pod.name) == (namespace, name):
                found = worker
        return found

    async def run(self) -> None:
        """Follow the API server until cancelled; then every container is killed."""
        query = f"fieldSelector=spec.nodeName={self._context.config.name}"
        try:
            async with asyncio.TaskGroup() as group:
                async for change in self._context.api.follow("/api/v1/pods", query):
                    if change.type == "SYNC":
                        present = {item["metadata"]["uid"] for item in change.items}
                        for uid in set(self._workers) - present:
                            self._vanish(uid)
                    for item in change.items:
                        if change.type == "DELETED":
                            self._vanish(item["metadata"]["uid"])
                        else:
                            self._see(item, group)
        finally:
            self._workers.clear()

    async def shut_down(self, grace_s: float) -> None:
        """Stop every pod, without a word to the API server."""
        for worker in self._workers.values():
            worker.shut_down(grace_s)
        if self._tasks:
            await asyncio.wait(self._tasks.values())

    def _see(self, raw: Object, group: asyncio.TaskGroup) -> None:
        uid, pod = raw["metadata"]["uid"], parse_pod(raw)
        if uid not in self._workers:
            self._workers[uid] = PodWorker(self._context, pod)
            self._tasks[uid] = group.create_task(self._run(uid), name=pod.key)
        self._workers[uid].update(pod)

    def _vanish(self, uid: str) -> None:
        if uid in self._workers:
            self._workers[uid].vanish()
            if uid not in self._tasks:
                del self._workers[uid]

    async def _run(self, uid: str) -> None:
        worker = self._workers[uid]
        try:
            await worker.run()
        except Exception:
            # One pod's fault in the node's own code must not take the others down.
            logger.exception("pod %s", worker.pod.key)
        finally:
            del self._tasks[uid]
            if worker.is_gone:
                self._workers.pop(uid, None)
