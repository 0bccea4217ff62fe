"""Reports one pod's status to the API server, whenever it differs from the last report."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from disaggpair_bed.node.api import STRATEGIC
from disaggpair_bed.node.container import ContainerRunner
from disaggpair_bed.node.context import PodContext
from disaggpair_bed.node.errors import ApiError
from disaggpair_bed.node.registration import rfc3339
from disaggpair_bed.node.status import build_status

logger = logging.getLogger(__name__)

_RETRY_S = 2.0


class Reporter:
    """`changed` is set by whoever changes something; `quiet` ends all reports."""

    def __init__(
        self,
        context: PodContext,
        init: Sequence[ContainerRunner],
        main: Sequence[ContainerRunner],
        changed: asyncio.Event,
    ) -> None:
        self._context, self._init, self._main, self._changed = context, init, main, changed
        before: Mapping[str, Any] = context.pod.raw.get("status") or {}
        self._conditions: Sequence[Mapping[str, Any]] = before.get("conditions") or ()
        self._start_time = before.get("startTime") or rfc3339(datetime.now(UTC))
        self._reported: dict[str, Any] | None = None
        self.quiet = False

    async def run(self) -> None:
        """Report changes until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self.report()

    async def report(self) -> None:
        """Bring the API server up to date; returns when it is, or the pod is gone there."""
        while not self.quiet:
            status = self._status()
            if status == self._reported:
                return
            body = {"metadata": {"uid": self._context.pod.uid}, "status": _as_patch(status)}
            try:
                await self._context.node.api.patch(
                    f"{self._context.pod.path}/status", body, STRATEGIC
                )
            except ApiError as exc:
                # 404: deleted; 409: another pod has the name by now.
                if exc.status in (404, 409):
                    return
                logger.warning("status of %s not reported: %s", self._context.pod.key, exc)
                await asyncio.sleep(_RETRY_S)
            else:
                self._reported, self._conditions = status, status["conditions"]
                return

    def _status(self) -> dict[str, Any]:
        return build_status(
            self._context.pod,
            [runner.view for runner in self._init],
            [runner.view for runner in self._main],
            self._context.place,
            self._start_time,
            self._conditions,
            rfc3339(datetime.now(UTC)),
        )


def _as_patch(status: Mapping[str, Any]) -> dict[str, Any]:
    """The API merges addresses by value: without the directive an old one would stay."""
    patch = dict(status)
    for name in ("podIPs", "hostIPs"):
        if patch[name]:
            patch[name] = [{"$patch": "replace"}, *patch[name]]
    return patch
