"""A Kubernetes cluster on one machine: a real control plane and process nodes."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from disaggpair_bed.controlplane.addresses import LoopbackPrefix
from disaggpair_bed.controlplane.errors import StartError, ToolError
from disaggpair_bed.controlplane.health import unready_nodes, wait_for_answer
from disaggpair_bed.controlplane.images import Images, bed_images, write_images
from disaggpair_bed.controlplane.nodes import DEFAULT_NODES, NodeSpec, write_nodes_config
from disaggpair_bed.controlplane.plane import START_PATIENCE_S, ControlPlane
from disaggpair_bed.controlplane.progress import Say
from disaggpair_bed.controlplane.rundir import RunDir
from disaggpair_bed.processes import Process, ProcessGroup
from disaggpair_bed.tools import Tools, find_tools

__all__ = ["DEFAULT_NODES", "Cluster", "NodeSpec"]

_NODES_STOP_S = 30.0
"""The node process stops the containers of its pods first."""


class Cluster:
    """One cluster in one run folder, from `start` to `stop`; also a context manager.

    Start it from the main thread: its processes die with the thread that started them. It
    starts empty and is started once. Without images its nodes know those of `bed_images`.

    Attributes:
        run_dir: keys, kubeconfigs, logs, the nodes' files, and `bin/` with kubectl and Helm.
        kubeconfig: kubeconfig of an administrator, there once the cluster is started.
        images: the image map, which running nodes read again when it changes.
        server: URL of the API server, known once the cluster is started.
    """

    def __init__(
        self,
        run_dir: Path,
        nodes: Sequence[NodeSpec] = (),
        images: Images | None = None,
        *,
        say: Say = lambda line: None,
    ) -> None:
        self.run_dir = run_dir.absolute()
        self.kubeconfig = self.run_dir / "admin.kubeconfig"
        self.images = self.run_dir / "images.yaml"
        self.server = ""
        self._nodes = tuple(nodes)
        self._image_map = bed_images() if images is None else images
        self._say = say
        self._group = ProcessGroup()
        self._held: list[Callable[[], None]] = []
        self._tools: Tools | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start everything; returns when the default namespace and the nodes take pods.

        After an error, Ctrl-C included, nothing of it runs.

        Raises:
            PrerequisiteError, BuildError: there are no programs to start.
            RunDirError: the run folder is not free.
            ProcessDiedError, StartError: a program did not come up.
        """
        self._tools = find_tools(self._say)
        started = time.monotonic()
        run_dir = RunDir(self.run_dir)
        self._held.append(run_dir.release)
        try:
            self._link_clients(self._tools)
            plane = ControlPlane(self.run_dir, self._tools, self._group)
            plane.start()
            self.server = plane.server
            self._say(f"cluster: control plane ready after {time.monotonic() - started:.1f} s")
            if self._nodes:
                self._start_nodes(plane)
                self._say(f"cluster: nodes ready after {time.monotonic() - started:.1f} s")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop everything; returns when no process is left. Logs and keys stay in the folder.

        Nodes go first. The API server goes before etcd, since without etcd its shutdown hangs
        for minutes.
        """
        self._group.stop()
        while self._held:
            self._held.pop()()

    def check(self) -> None:
        """Raise ProcessDiedError if a program ended by itself."""
        self._group.check()

    def wait(self) -> None:
        """Block until a program ends by itself, and raise its ProcessDiedError."""
        self._group.wait()

    @property
    def processes(self) -> tuple[Process, ...]:
        """The running programs in the order of their start."""
        return tuple(self._group)

    @property
    def tool_environment(self) -> dict[str, str]:
        """Environment for kubectl and Helm: the administrator, and caches in the run folder."""
        state = self.run_dir / "tools"
        return {
            **os.environ,
            "KUBECONFIG": str(self.kubeconfig),
            "KUBECACHEDIR": str(state / "kubectl"),
            "HELM_CACHE_HOME": str(state / "helm-cache"),
            "HELM_CONFIG_HOME": str(state / "helm-config"),
            "HELM_DATA_HOME": str(state / "helm-data"),
        }

    def node_kubeconfig(self, name: str) -> Path:
        """The kubeconfig of one of the cluster's nodes."""
        return self.run_dir / "nodes" / f"{name}.kubeconfig"

    def kubectl(self, *args: str, stdin: str | None = None, timeout_s: float = 60.0) -> str:
        """What kubectl prints, called as the administrator.

        Raises:
            ToolError: it failed; the message holds its error output.
            ProcessDiedError: it failed because the cluster did.
        """
        return self._call("kubectl", args, stdin, timeout_s)

    def helm(self, *args: str, stdin: str | None = None, timeout_s: float = 300.0) -> str:
        """What Helm prints, called as the administrator; errors as those of `kubectl`."""
        return self._call("helm", args, stdin, timeout_s)

    def _link_clients(self, tools: Tools) -> None:
        folder = self.run_dir / "bin"
        folder.mkdir()
        for name in ("kubectl", "helm"):
            if name in tools.programs:
                (folder / name).symlink_to(tools[name])

    def _call(self, tool: str, args: Sequence[str], stdin: str | None, timeout_s: float) -> str:
        if self._tools is None:
            raise StartError(f"{tool}: the cluster is not started")
        try:
            done = subprocess.run(
                [self._tools[tool], *args],
                input=stdin or "",
                capture_output=True,
                text=True,
                env=self.tool_environment,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            self.check()
            raise ToolError(f"{tool} {' '.join(args)}: no end after {timeout_s:.0f} s") from None
        if done.returncode != 0:
            self.check()
            raise ToolError(f"{tool} {' '.join(args)}: {done.stderr.strip()}")
        return done.stdout

    def _start_nodes(self, plane: ControlPlane) -> None:
        prefix = LoopbackPrefix()
        self._held.append(prefix.release)
        write_images(self.images, self._image_map)
        config = write_nodes_config(
            self.run_dir,
            self._nodes,
            prefix=prefix.text,
            server=plane.server,
            authority=plane.identities.authority,
            images=self.images,
        )
        command = [sys.executable, "-m", "disaggpair_bed.cli", "nodes", "--config", str(config)]
        log = self.run_dir / "logs" / "nodes.log"
        self._group.start(Process("nodes", command, log, patience_s=_NODES_STOP_S))
        wanted = {spec.name for spec in self._nodes}

        def question() -> str | None:
            nodes = plane.client.get_json(f"{plane.server}/api/v1/nodes")["items"]
            return unready_nodes(nodes, wanted)

        wait_for_answer(f"nodes (log: {log})", question, self.check, START_PATIENCE_S)
