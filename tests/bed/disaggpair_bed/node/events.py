"""Events about pods, as the kubelet writes them: best effort, never in the way of a pod."""

import asyncio
import logging
from datetime import UTC, datetime

from disaggpair_bed.node.api import Api
from disaggpair_bed.node.errors import ApiError
from disaggpair_bed.node.registration import rfc3339
from disaggpair_bed.node.spec import Pod

logger = logging.getLogger(__name__)

_QUIET_S = 60.0
"""The same event of the same pod is written once in that time."""


class Events:
    """Writes events in the background; `aclose` drops those not written yet."""

    def __init__(self, api: Api, node: str) -> None:
        self._api, self._node = api, node
        self._written: dict[tuple[str, str, str], float] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def record(
        self, pod: Pod, reason: str, message: str, container: str = "", warning: bool = False
    ) -> None:
        """Write an event about a pod, or about one of its containers."""
        now = asyncio.get_running_loop().time()
        key = (pod.uid, reason, message)
        self._written = {k: at for k, at in self._written.items() if now - at < _QUIET_S}
        if key in self._written:
            return
        self._written[key] = now
        task = asyncio.create_task(self._write(pod, reason, message, container, warning))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self) -> None:
        """Stop writing."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _write(
        self, pod: Pod, reason: str, message: str, container: str, warning: bool
    ) -> None:
        now = rfc3339(datetime.now(UTC))
        regarding = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": pod.name,
            "namespace": pod.namespace,
            "uid": pod.uid,
        }
        if container:
            regarding["fieldPath"] = f"spec.containers{{{container}}}"
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{pod.name[:40]}.", "namespace": pod.namespace},
            "involvedObject": regarding,
            "reason": reason,
            "message": message[:1000],
            "type": "Warning" if warning else "Normal",
            "source": {"component": "kubelet", "host": self._node},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self._api.create(f"/api/v1/namespaces/{pod.namespace}/events", event)
        except ApiError as exc:
            logger.debug("event %s of %s not written: %s", reason, pod.key, exc)
