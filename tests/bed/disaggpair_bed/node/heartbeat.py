"""Keeps the Node object and its Lease fresh."""

import asyncio
import logging
from datetime import UTC, datetime

from disaggpair_bed.node.api import STRATEGIC, Api
from disaggpair_bed.node.config import NodeConfig
from disaggpair_bed.node.context import NodeContext
from disaggpair_bed.node.errors import ApiError
from disaggpair_bed.node.registration import (
    HEARTBEAT_S,
    STATUS_S,
    lease_object,
    node_labels,
    node_object,
    node_status,
    rfc3339,
)
from disaggpair_bed.node.waits import happens_within

logger = logging.getLogger(__name__)

_RETRY_S = 1.0
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


async def register(api: Api, config: NodeConfig) -> None:
    """Create the Node object, or give an existing one our labels; tries until it works."""
    while True:
        try:
            try:
                await api.create("/api/v1/nodes", node_object(config))
            except ApiError as exc:
                if exc.status != 409:
                    raise
                labels = {"metadata": {"labels": node_labels(config)}}
                await api.patch(f"/api/v1/nodes/{config.name}", labels)
            return
        except ApiError as exc:
            logger.warning("node %s not registered: %s", config.name, exc)
            await asyncio.sleep(_RETRY_S)


async def beat(context: NodeContext, refresh: asyncio.Event, reported: asyncio.Event) -> None:
    """Renew the Lease and report the status until cancelled.

    `refresh` asks for a report at once; `reported` is set after the first one.
    """
    loop = asyncio.get_running_loop()
    up_since = rfc3339(datetime.now(UTC))
    report_at = loop.time()
    while True:
        try:
            if refresh.is_set() or loop.time() >= report_at:
                refresh.clear()
                await _report(context, up_since)
                report_at = loop.time() + STATUS_S
                reported.set()
            await _renew(context)
            wait_s = HEARTBEAT_S
        except ApiError as exc:
            logger.warning("heartbeat of %s failed: %s", context.config.name, exc)
            report_at = loop.time()
            wait_s = _RETRY_S
        await happens_within(refresh, wait_s)


async def _report(context: NodeContext, up_since: str) -> None:
    config = context.config
    status = node_status(config, datetime.now(UTC), up_since, context.faults.efa_gone)
    path = f"/api/v1/nodes/{config.name}/status"
    try:
        await context.api.patch(path, {"status": status}, STRATEGIC)
    except ApiError as exc:
        if exc.status != 404:
            raise
        # Somebody deleted the Node object of a node that runs: it comes back.
        await register(context.api, config)
        await context.api.patch(path, {"status": status}, STRATEGIC)


async def _renew(context: NodeContext) -> None:
    name, now = context.config.name, datetime.now(UTC)
    lease = lease_object(context.config, now)
    try:
        await context.api.patch(f"{_LEASES}/{name}", {"spec": lease["spec"]})
    except ApiError as exc:
        if exc.status != 404:
            raise
        node = await context.api.get(f"/api/v1/nodes/{name}")
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]}
        lease["metadata"]["ownerReferences"] = [owner]
        await context.api.create(_LEASES, lease)
