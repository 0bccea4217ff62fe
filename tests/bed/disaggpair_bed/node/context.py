"""What the parts of a node share: one `NodeContext` per node, one `PodContext` per pod."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from disaggpair_bed.node.addresses import AddressPool
from disaggpair_bed.node.api import Api
from disaggpair_bed.node.config import BedConfig, NodeConfig
from disaggpair_bed.node.downward import Placement
from disaggpair_bed.node.events import Events
from disaggpair_bed.node.faults import Faults, parse_faults
from disaggpair_bed.node.handlers import Handlers
from disaggpair_bed.node.images import ImageMap
from disaggpair_bed.node.process import Runtime
from disaggpair_bed.node.registration import resources
from disaggpair_bed.node.spec import Pod
from disaggpair_bed.node.volumes import Volumes


@dataclass
class NodeContext:
    """One node while it is up."""

    config: NodeConfig
    bed: BedConfig
    api: Api
    runtime: Runtime
    images: ImageMap
    events: Events
    handlers: Handlers
    addresses: AddressPool
    directory: Path
    memory: Path
    faults: Faults = field(default_factory=Faults)

    def placement(self, pod_ip: str) -> Placement:
        """Where a pod with that address runs."""
        return Placement(
            node=self.config.name,
            pod_ip=pod_ip,
            host_ip=self.config.address,
            allocatable=resources(self.config),
            server_host=self.api.host,
            server_port=str(self.api.port),
        )


class Grace:
    """How long a pod may still take to stop. Unlimited at first, then only ever shortened."""

    def __init__(self) -> None:
        self._over = asyncio.Event()
        self._deadline: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def limit(self, seconds: float) -> None:
        """End in at most that many seconds from now."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        if self._deadline is not None and self._deadline <= deadline:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._deadline = deadline
        self._timer = loop.call_at(deadline, self._over.set)

    async def over(self) -> None:
        """Return when the time is up."""
        await self._over.wait()


@dataclass
class PodContext:
    """One pod on its node; `pod` is replaced when the object changes."""

    node: NodeContext
    pod: Pod
    place: Placement
    volumes: Volumes
    directory: Path
    changed: Callable[[], None]
    grace: Grace = field(default_factory=Grace)

    @property
    def slow_start_s(self) -> float:
        """Seconds by which a fault delays each start."""
        return max(self.node.faults.slow_start_s, parse_faults(self.pod.annotations).slow_start_s)
