"""From a container's spec to what its process needs: directories, mounts, environment."""

import asyncio
import shutil
from dataclasses import dataclass
from pathlib import Path

from disaggpair_bed.node.context import PodContext
from disaggpair_bed.node.env import argv, pod_env, process_env, references
from disaggpair_bed.node.errors import SpecError
from disaggpair_bed.node.expand import expand
from disaggpair_bed.node.mounts import Bind, plan_mounts
from disaggpair_bed.node.payload import RENDERED
from disaggpair_bed.node.process import Launch
from disaggpair_bed.node.spec import Container, Mount, Object
from disaggpair_bed.node.view import HostView
from disaggpair_bed.node.volumes import fetch_sources

HOSTS = "etc-hosts"
SCRATCH = "/run/scratch"
"""Where a container sees its own scratch folder. Short, because programs put sockets there, and the
path of a Unix socket has at most 107 characters."""


@dataclass(frozen=True)
class RunFiles:
    """The node's files for one run of a container."""

    directory: Path

    @property
    def message(self) -> Path:
        """What the container sees at its terminationMessagePath."""
        return self.directory / "termination-log"

    @property
    def scratch(self) -> Path:
        """Home, temporary and working directory of the container, empty at each start."""
        return self.directory / "scratch"

    @property
    def root(self) -> Path:
        """Mount point of the container's root, always empty for everybody else."""
        return self.directory / "root"

    def make(self) -> None:
        """Make the files anew."""
        shutil.rmtree(self.directory, ignore_errors=True)
        for path in (self.scratch, self.root):
            path.mkdir(parents=True)
        self.message.touch()


async def prepare_launch(context: PodContext, container: Container, files: RunFiles) -> Launch:
    """Raises UnknownImage, MissingReference, SpecError, or ApiError when a read failed."""
    node, pod = context.node, context.pod
    image = node.images.find(container.image)
    sources = await fetch_sources(node.api, pod.namespace, references(container))
    values = pod_env(container, pod, context.place, sources)
    await asyncio.to_thread(files.make)
    hostname = node.config.name if pod.host_network else pod.hostname
    binds = [_image_bind(target, Path(source)) for target, source in image.files.items()]
    binds += [_volume_bind(context, mount, values) for mount in container.mounts]
    binds.append(Bind(str(files.message), container.message_path, is_dir=False))
    binds.append(Bind(str(context.directory / HOSTS), "/etc/hosts", is_dir=False))
    binds.append(Bind(str(files.scratch), SCRATCH, is_dir=True))
    return Launch(
        argv=argv(container, image, values),
        env=process_env(image, values, SCRATCH, hostname),
        cwd=container.working_dir or SCRATCH,
        hostname=hostname,
        root=files.root,
        ops=plan_mounts(binds, HostView()),
    )


def write_hosts(context: PodContext) -> None:
    """The pod's /etc/hosts: the machine's own, and the pod's name at the pod's address."""
    host = Path("/etc/hosts")
    text = host.read_text() if host.exists() else "127.0.0.1 localhost\n"
    context.directory.mkdir(parents=True, exist_ok=True)
    line = f"{context.place.pod_ip} {context.pod.hostname}\n"
    (context.directory / HOSTS).write_text(f"{text.rstrip()}\n{line}")


def _image_bind(target: str, source: Path) -> Bind:
    if not source.exists():
        raise SpecError(f"the image holds {target}, but {source} is not on this machine")
    return Bind(str(source), target, source.is_dir(), read_only=True)


def _volume_bind(context: PodContext, mount: Mount, values: dict[str, str]) -> Bind:
    volume = next((v for v in context.pod.volumes if v["name"] == mount.volume), None)
    if volume is None:
        raise SpecError(f"volumeMount {mount.volume!r} names no volume of the pod")
    source = context.volumes.path(volume)
    sub_path = expand(mount.sub_path_expr, values) if mount.sub_path_expr else mount.sub_path
    if sub_path:
        source = _sub_path(source, sub_path, volume)
    # The kubelet mounts these read-only too: what it writes is not the container's to change.
    read_only = mount.read_only or any(kind in volume for kind in RENDERED)
    return Bind(str(source), mount.path, source.is_dir(), read_only)


def _sub_path(source: Path, sub_path: str, volume: Object) -> Path:
    inside = (source / sub_path).resolve()
    if not inside.is_relative_to(source.resolve()):
        raise SpecError(f"subPath {sub_path!r} leaves volume {volume['name']!r}")
    if not inside.exists():
        if any(kind in volume for kind in RENDERED):
            raise SpecError(f"subPath {sub_path!r} is not in volume {volume['name']!r}")
        inside.mkdir(parents=True)
    return inside
