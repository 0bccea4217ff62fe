"""The host process: kopf as informer, sign-in keeper and liveness probe; our queue does the work.

The one module that imports kopf. Only `on.event` handlers are registered: unlike kopf's other
handlers they write neither a finalizer nor annotations, and they hide no event. Each turns an
event into a key and returns at once. A lost event is made up for by the slow timer.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence, Set
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any, Final

import kopf

from disaggpair_operator import kinds, kube, names
from disaggpair_operator.cluster import Cluster, ClusterError, Rejected, Unavailable
from disaggpair_operator.errors import DefinitionMissing, Incomplete, WatchEnded
from disaggpair_operator.keys import Key, KnownPairs, pair_key
from disaggpair_operator.metrics import Metrics
from disaggpair_operator.model import Facts
from disaggpair_operator.ownership import owner_key
from disaggpair_operator.queue import WorkQueue
from disaggpair_operator.reconcile import Reconciler
from disaggpair_operator.settings import Settings

SETTLE_S: Final = 0.3
"""Delay after an event of a child or pod: they come in bursts, and one reconcile answers all."""

_START_DELAYS_S: Final = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Pauses between the first questions to an API server that does not answer yet."""

_ROUNDS: Final = 10
_ROUND_S: Final = 2.0
"""Longest time of one round, in seconds, and the most rounds."""

_log = logging.getLogger(__name__)


async def serve(settings: Settings) -> None:
    """Run the operator until SIGTERM or SIGINT.

    Raises DefinitionMissing, NoCredentials or ClusterError when it cannot begin, and WatchEnded
    when it cannot go on.
    """
    async with kube.connect(settings.kubeconfig) as cluster:
        await check_definition(cluster, settings.namespaces)
        known = KnownPairs()
        facts = Facts(settings.router_image, settings.router_pull_policy, settings.bind)
        metrics = Metrics(lambda: len(known.all()), lambda: len(queue))
        queue: WorkQueue[Key] = WorkQueue(
            metrics.measured(Reconciler(cluster, facts, _now).reconcile),
            on_failure=log_failure,
            workers=settings.workers,
        )
        with ExitStack() as stack:
            if settings.metrics_port:
                stack.callback(metrics.serve(settings.host, settings.metrics_port))
            await _host(settings, cluster, known, queue)


async def check_definition(
    cluster: Cluster,
    namespaces: tuple[str, ...],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Raise DefinitionMissing with a sentence when the API server does not know our kind.

    kopf would only warn, and then wait for ever. A definition that was installed a moment ago is
    unavailable until its storage is ready, so that is waited for.
    """
    namespace = namespaces[0] if namespaces else ""
    for delay_s in (*_START_DELAYS_S, None):
        try:
            await cluster.list(kinds.PAIR.api_version, kinds.PAIR.kind, namespace)
            return
        except Rejected as error:
            raise DefinitionMissing(
                f"the API server does not know {names.KIND} ({names.API_VERSION}): install the "
                "CustomResourceDefinition in crds/, or the chart with crds.install=true"
            ) from error
        except Unavailable:
            if delay_s is None:
                raise
            await sleep(delay_s)


async def _host(
    settings: Settings, cluster: kube.KubeCluster, known: KnownPairs, queue: WorkQueue[Key]
) -> None:
    """Run the queue, the timer and kopf's tasks; all end when one of them ends."""
    others = asyncio.all_tasks()
    tasks = [
        asyncio.create_task(queue.run(), name="queue"),
        asyncio.create_task(_resync(known, queue, settings.resync_s), name="resync"),
    ]
    ours = tuple(tasks)
    try:
        # Not kopf.operator(): when a watch fails, 1.45 may wait for its own remains for ever.
        tasks += await kopf.spawn_tasks(
            registry=build_registry(Events(known, queue), cluster.credentials),
            settings=kopf_settings(),
            standalone=True,
            clusterwide=not settings.namespaces,
            namespaces=settings.namespaces,
            liveness_endpoint=settings.health_url,
        )
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _end(tasks, others)
    for task in done:
        error = None if task.cancelled() else task.exception()
        if error is not None and task not in ours:
            raise WatchEnded(f"a watch ended and cannot go on: {error}") from error
        if error is not None:
            raise error


async def _end(tasks: Sequence[asyncio.Task[None]], others: Set[asyncio.Task[Any]]) -> None:
    """Cancel these tasks, then in rounds all that is left but the others.

    The first round ends a process that was told to stop. After a watch failed, kopf's other
    watchers remain. They need tasks of their own to end well, so they go before the rest; and
    should they wait without a limit for what is gone already, another round ends that too.
    """
    left = set(tasks)
    for attempt in range(_ROUNDS):
        for task in left:
            task.cancel()
        done, _ = await asyncio.wait(left, timeout=_ROUND_S)
        for task in done:
            # Asked for, so that asyncio does not report it as never looked at.
            if not task.cancelled():
                task.exception()
        left = asyncio.all_tasks() - others - {asyncio.current_task()}
        watchers = {task for task in left if task.get_name().startswith("watcher for ")}
        if watchers and attempt < _ROUNDS // 2:
            left = watchers
        if not left:
            return


async def _resync(known: KnownPairs, queue: WorkQueue[Key], period_s: float) -> None:
    while True:
        await asyncio.sleep(period_s)
        for key in known.all():
            queue.add(key)


class Events:
    """What an event asks for: a key in the queue."""

    def __init__(self, known: KnownPairs, queue: WorkQueue[Key]) -> None:
        self._known = known
        self._queue = queue

    async def on_pair(self, event: Any, **_: Any) -> None:
        """A pair appeared, changed or went; all are listed when a watch begins."""
        key = pair_key(event["object"])
        if event["type"] == "DELETED":
            self._known.discard(key)
        else:
            self._known.add(key)
        self._queue.add(key)

    async def on_child(self, event: Any, **_: Any) -> None:
        """An object with the pair label that some pair may own."""
        self._add(owner_key(event["object"]))

    async def on_pod(self, event: Any, **_: Any) -> None:
        """A pod with the pair label."""
        self._add(self._known.find_pod_pair(event["object"]))

    def _add(self, key: Key | None) -> None:
        if key is not None:
            self._queue.add(key, SETTLE_S)


def build_registry(
    events: Events, credentials: Callable[[], Awaitable[kube.Credentials]]
) -> kopf.OperatorRegistry:
    """Handlers for pairs, their children and their pods, in a registry of their own."""
    registry = kopf.OperatorRegistry()

    async def log_in(**_: Any) -> kopf.ConnectionInfo:
        return connection_info(await credentials())

    kopf.on.login(registry=registry)(log_in)
    kopf.on.event(*_selector(kinds.PAIR), registry=registry)(events.on_pair)
    kopf.on.event(*_selector(kinds.POD), registry=registry)(events.on_pod)
    for kind in kinds.CHILDREN:
        kopf.on.event(*_selector(kind), registry=registry)(events.on_child)
    return registry


def kopf_settings() -> kopf.OperatorSettings:
    """Use kopf as an informer only: no Events, no scan of the cluster, watches that end."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    # Our handlers return at once, so nothing is lost when a watch ends without much patience.
    settings.queueing.exit_timeout = 0.5
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.watching.connect_timeout = 10
    # The server ends a watch first; the client's limit is for a server that does not.
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 310
    settings.watching.inactivity_timeout = 70
    for kind in (kinds.POD, *kinds.CHILDREN):
        settings.watching.label_selectors[_selector(kind)] = names.PAIR_LABEL
    return settings


def connection_info(credentials: kube.Credentials) -> kopf.ConnectionInfo:
    """The same sign-in in kopf's form."""
    scheme, _, token = (credentials.authorization or "").partition(" ")
    return kopf.ConnectionInfo(
        server=credentials.server,
        ca_path=credentials.ca_path,
        insecure=credentials.insecure,
        scheme=scheme.capitalize() or None,
        token=token or None,
        certificate_path=credentials.certificate_path,
        private_key_path=credentials.private_key_path,
        trust_env=True,
    )


def log_failure(key: Key, error: Exception, failures: int, delay_s: float) -> None:
    """One line for an expected failure; the traceback as well for a fault of ours."""
    extra = {"pair": str(key), "failures": failures, "again_s": round(delay_s, 1)}
    if isinstance(error, (ClusterError, Incomplete)):
        _log.warning("failed", extra={**extra, "text": str(error)})
    else:
        _log.error("crashed", extra=extra, exc_info=error)


def _selector(kind: kinds.Kind) -> tuple[str, str, str]:
    return kind.group, kind.version, kind.plural


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
