"""The life of one pod on its node: address, volumes, containers in order, status, end."""

import asyncio
import logging
import shutil
from dataclasses import replace

from disaggpair_bed.node.addresses import NoAddress
from disaggpair_bed.node.container import ContainerRunner
from disaggpair_bed.node.context import NodeContext, PodContext
from disaggpair_bed.node.errors import ApiError, MissingReference, SpecError
from disaggpair_bed.node.faults import parse_faults
from disaggpair_bed.node.launch import write_hosts
from disaggpair_bed.node.report import Reporter
from disaggpair_bed.node.signals import FaultSignals
from disaggpair_bed.node.spec import Container, Pod
from disaggpair_bed.node.status import DONE_PHASES, Terminated, Waiting, view_before
from disaggpair_bed.node.volumes import Volumes
from disaggpair_bed.node.waits import cancel, first_of, happens_within

logger = logging.getLogger(__name__)

_RETRY_S = 2.0


class PodWorker:
    """Runs one pod. `run` is its task; `update`, `vanish` and `shut_down` tell it what happens."""

    def __init__(self, node: NodeContext, pod: Pod) -> None:
        self._node = node
        self._stopping = asyncio.Event()
        self._signals = FaultSignals()
        self._changed = asyncio.Event()
        directory = node.directory / pod.uid
        volumes = Volumes(node.api, directory / "volumes", node.memory / pod.uid)
        self._context = PodContext(
            node, pod, node.placement(""), volumes, directory, self._changed.set
        )
        self._init = [self._runner(c, "initContainerStatuses") for c in pod.init_containers]
        self._main = [self._runner(c, "containerStatuses") for c in pod.containers]
        self._reporter = Reporter(self._context, self._init, self._main, self._changed)
        self.is_gone = False
        """True when the API server has the object no more, or the node has to forget it."""

    @property
    def pod(self) -> Pod:
        """The pod as last seen."""
        return self._context.pod

    def runner(self, container: str) -> ContainerRunner | None:
        """The runner of a container, for its logs."""
        runners = (*self._init, *self._main)
        return next((r for r in runners if r.container.name == container), None)

    def update(self, pod: Pod) -> None:
        """The object was seen, for the first time or changed."""
        self._context.pod = pod
        if pod.deletion_grace_s is not None:
            self._stop(pod.deletion_grace_s)
        faults = parse_faults(pod.annotations)
        for word in faults.unknown:
            self._node.events.record(pod, "UnknownFault", f"fault {word!r} is ignored", "", True)
        self._signals.apply(faults, {r.container.name: r for r in self._main})
        self._changed.set()

    def vanish(self) -> None:
        """The object is gone from the API server: kill what is left of the pod."""
        self._forget(0)

    def shut_down(self, grace_s: float) -> None:
        """The node ends: stop the containers and say nothing, as when a machine is switched off."""
        self._forget(grace_s)

    async def run(self) -> None:
        """Return when nothing of the pod is left here. Cancelling kills its containers."""
        reporting = asyncio.create_task(self._reporter.run())
        try:
            if (self.pod.raw.get("status") or {}).get("phase") in DONE_PHASES:
                self._reporter.quiet = True
            elif not self._is_over() and await self._set_up():
                refreshing = asyncio.create_task(self._refresh_volumes())
                try:
                    await self._run_containers()
                finally:
                    await cancel(refreshing)
            await self._stopping.wait()
            await cancel(reporting)
            await self._reporter.report()
            await self._delete()
        finally:
            await cancel(reporting)
            await self._context.volumes.remove()
            await asyncio.to_thread(shutil.rmtree, self._context.directory, True)
            if not self.pod.host_network:
                self._node.addresses.give_back(self._context.place.pod_ip)

    def _is_over(self) -> bool:
        """True when a former life of this node ran the pod and its policy wants no second run."""
        return any(isinstance(runner.view.state, Terminated) for runner in self._main) and (
            self.pod.restart_policy == "Never"
        )

    def _forget(self, grace_s: float) -> None:
        self.is_gone = self._reporter.quiet = True
        self._stop(grace_s)

    def _stop(self, grace_s: float) -> None:
        self._context.grace.limit(grace_s)
        self._stopping.set()
        for runner in (*self._init, *self._main):
            # Sidecars follow when the containers they serve have ended.
            if not runner.container.sidecar:
                runner.stop()

    async def _set_up(self) -> bool:
        """Address and volumes; false when the pod has to stop before it has them."""
        context = self._context
        self._changed.set()
        while not self._stopping.is_set():
            try:
                if not context.place.pod_ip:
                    context.place = self._node.placement(self._take_address())
                if not self._node.config.hollow:
                    write_hosts(context)
                    await context.volumes.prepare(self.pod, context.place)
                self._explain(_first_reason(self.pod), "")
                return True
            except (SpecError, MissingReference, ApiError, NoAddress, OSError) as exc:
                logger.warning("%s: %s", self.pod.key, exc)
                self._node.events.record(self.pod, "FailedMount", str(exc), warning=True)
                self._explain("ContainerCreating", str(exc))
            await happens_within(self._stopping, _RETRY_S)
        return False

    def _explain(self, reason: str, message: str) -> None:
        """Say why the containers do not run yet; one that stays ended keeps its state."""
        for runner in self._main:
            if isinstance(runner.view.state, Waiting):
                runner.explain_waiting(reason, message)

    def _take_address(self) -> str:
        if self.pod.host_network:
            return self._node.config.address
        before = (self.pod.raw.get("status") or {}).get("podIP") or ""
        return self._node.addresses.take(before)

    async def _run_containers(self) -> None:
        sidecars: list[tuple[ContainerRunner, asyncio.Task[None]]] = []
        async with asyncio.TaskGroup() as group:
            if await self._run_init(group, sidecars):
                self._explain("ContainerCreating", "")
                tasks = [group.create_task(runner.run()) for runner in self._main]
                await asyncio.wait(tasks)
            for runner, task in reversed(sidecars):
                runner.stop()
                await asyncio.wait((task,))

    async def _run_init(
        self,
        group: asyncio.TaskGroup,
        sidecars: "list[tuple[ContainerRunner, asyncio.Task[None]]]",
    ) -> bool:
        """Run the init containers in order; false when the others must not start."""
        for runner in self._init:
            if self._stopping.is_set():
                return False
            task = group.create_task(runner.run())
            if runner.container.sidecar:
                sidecars.append((runner, task))
                await first_of(task, runner.started.wait(), self._stopping.wait())
                continue
            if self._node.config.hollow:
                await first_of(task, runner.started.wait(), self._stopping.wait())
                runner.stop()
            await asyncio.wait((task,))
            state = runner.view.state
            if not isinstance(state, Terminated) or state.exit_code != 0:
                return False
        return not self._stopping.is_set()

    async def _refresh_volumes(self) -> None:
        while not self._node.config.hollow:
            await asyncio.sleep(self._node.bed.refresh_s)
            try:
                await self._context.volumes.refresh(self.pod, self._context.place)
            except (MissingReference, SpecError, ApiError, OSError) as exc:
                self._node.events.record(self.pod, "FailedMount", str(exc), warning=True)

    async def _delete(self) -> None:
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.pod.uid}}
        while not self.is_gone:
            try:
                await self._node.api.delete(self.pod.path, options)
                return
            except ApiError as exc:
                # 404: gone already; 409: another pod has the name by now.
                if exc.status in (404, 409):
                    return
                logger.warning("%s not deleted: %s", self.pod.key, exc)
                await asyncio.sleep(_RETRY_S)

    def _runner(self, container: Container, kind: str) -> ContainerRunner:
        policy = self.pod.restart_policy
        former = policy
        if container.sidecar:
            policy = former = "Always"
        elif kind == "initContainerStatuses" and policy != "Never":
            # A node that comes back has no volumes left of what they did: they run once more.
            policy, former = "OnFailure", "Always"
        statuses = (self.pod.raw.get("status") or {}).get(kind) or ()
        before = next((s for s in statuses if s["name"] == container.name), None)
        view = view_before(container, before or {}, former)
        if isinstance(view.state, Waiting):
            view = replace(view, state=Waiting(_first_reason(self.pod)))
        return ContainerRunner(self._context, view, policy)


def _first_reason(pod: Pod) -> str:
    """Why the containers of a new pod wait."""
    return "PodInitializing" if pod.init_containers else "ContainerCreating"
