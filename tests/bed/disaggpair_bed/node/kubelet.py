"""One process node: its Node object, its pods, and the faults that switch it off."""

import asyncio
import logging
import shutil
from pathlib import Path

from disaggpair_bed.node.addresses import AddressPool
from disaggpair_bed.node.api import Api
from disaggpair_bed.node.config import BedConfig, NodeConfig
from disaggpair_bed.node.context import NodeContext
from disaggpair_bed.node.endpoint import serving_logs
from disaggpair_bed.node.events import Events
from disaggpair_bed.node.faults import Faults, parse_faults
from disaggpair_bed.node.handlers import Handlers
from disaggpair_bed.node.heartbeat import beat, register
from disaggpair_bed.node.images import ImageMap
from disaggpair_bed.node.pods import Pods
from disaggpair_bed.node.process import Runtime
from disaggpair_bed.node.waits import cancel, first_of

logger = logging.getLogger(__name__)


class Kubelet:
    """Plays one node from `run` until its task is cancelled or `stop` is called."""

    def __init__(
        self,
        config: NodeConfig,
        bed: BedConfig,
        runtime: Runtime,
        images: ImageMap,
        memory: Path,
    ) -> None:
        self._config, self._bed, self._runtime, self._images = config, bed, runtime, images
        self._memory = memory
        self._faults = Faults()
        self._stop, self._gone, self._back = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._seen = asyncio.Event()
        self._refresh = asyncio.Event()
        self._context: NodeContext | None = None
        self.ready = asyncio.Event()
        """Set when the node has reported its status for the first time."""

    def stop(self) -> None:
        """Stop the pods within the configured time and let `run` return."""
        self._stop.set()

    async def run(self) -> None:
        """Serve the node; one that a fault switched off comes back when the fault is removed."""
        api = Api.from_kubeconfig(self._config.kubeconfig, self._bed.server)
        try:
            registration = asyncio.create_task(register(api, self._config))
            await first_of(registration, self._stop.wait())
            await cancel(registration)
            watcher = asyncio.create_task(self._watch_faults(api))
            try:
                await first_of(self._seen.wait(), self._stop.wait(), watcher)
                while not self._stop.is_set():
                    await first_of(self._back.wait(), self._stop.wait(), watcher)
                    if watcher.done():
                        await watcher
                    if not self._stop.is_set():
                        await self._be_up(api, watcher)
            finally:
                await cancel(watcher)
        finally:
            await api.aclose()

    async def _be_up(self, api: Api, watcher: "asyncio.Task[None]") -> None:
        """Run until stopped or switched off; on return no process of the node is left."""
        directory = self._bed.run_dir.absolute() / self._config.name
        memory = self._memory / self._config.name
        for path in (directory, memory):
            # Left by a node process that was killed; its containers died with it.
            await asyncio.to_thread(shutil.rmtree, path, True)
            path.mkdir(parents=True)
        context = NodeContext(
            config=self._config,
            bed=self._bed,
            api=api,
            runtime=self._runtime,
            images=self._images,
            events=Events(api, self._config.name),
            handlers=Handlers(),
            addresses=AddressPool(self._config.pod_prefix, self._config.address),
            directory=directory,
            memory=memory,
            faults=self._faults,
        )
        pods = Pods(context)
        self._context = context
        logger.info("node %s is up at %s", self._config.name, self._config.address)
        try:
            async with serving_logs(self._config, pods):
                running = asyncio.create_task(pods.run())
                beating = asyncio.create_task(beat(context, self._refresh, self.ready))
                try:
                    await first_of(running, beating, watcher, self._stop.wait(), self._gone.wait())
                    if self._stop.is_set():
                        await pods.shut_down(self._bed.shutdown_s)
                finally:
                    await cancel(running, beating)
                for task in (running, beating):
                    if not task.cancelled() and (error := task.exception()):
                        raise error
        finally:
            self._context = None
            await context.events.aclose()
            await context.handlers.aclose()
            for path in (directory, memory):
                await asyncio.to_thread(shutil.rmtree, path, True)
            logger.info("node %s is down", self._config.name)

    async def _watch_faults(self, api: Api) -> None:
        query = f"fieldSelector=metadata.name={self._config.name}"
        async for change in api.follow("/api/v1/nodes", query):
            for node in change.items:
                if change.type == "DELETED":
                    # A report puts the object back.
                    self._refresh.set()
                else:
                    self._take(parse_faults(node["metadata"].get("annotations") or {}))

    def _take(self, faults: Faults) -> None:
        if self._seen.is_set() and faults == self._faults:
            return
        self._seen.set()
        for word in faults.unknown:
            logger.warning("node %s: unknown fault %r is ignored", self._config.name, word)
        self._faults = faults
        for event, holds in ((self._gone, faults.node_gone), (self._back, not faults.node_gone)):
            if holds:
                event.set()
            else:
                event.clear()
        if self._context is not None:
            self._context.faults = faults
        self._refresh.set()
