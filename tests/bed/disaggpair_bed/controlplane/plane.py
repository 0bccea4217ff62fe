"""Start the four programs of a control plane, each once the one it needs is healthy."""

import datetime as dt
from collections.abc import Sequence
from pathlib import Path

from disaggpair_bed.controlplane import flags
from disaggpair_bed.controlplane.addresses import LOOPBACK, Ports
from disaggpair_bed.controlplane.health import Client, wait_for_answer
from disaggpair_bed.controlplane.identities import Identities, write_identities
from disaggpair_bed.processes import Process, ProcessGroup
from disaggpair_bed.tools import Tools

START_PATIENCE_S = 120.0
"""How long one program may take to become healthy, on a machine that is busy elsewhere."""

_APISERVER_STOP_S = 8.0
"""An API server with open watches ends within two seconds; without etcd it would hang."""

_PORTS = ("etcd", "etcd-peer", "apiserver", "controller-manager", "scheduler")


class ControlPlane:
    """etcd, API server, controller manager and scheduler in one run folder.

    Whoever owns the process group stops them.

    Attributes:
        server: URL of the API server.
        identities: keys and kubeconfigs.
        client: asks the API server as its administrator.
    """

    def __init__(self, run_dir: Path, tools: Tools, group: ProcessGroup) -> None:
        self._run_dir = run_dir
        self._tools = tools
        self._group = group
        self._ports = Ports(_PORTS)
        self.server = self._url("apiserver")
        self.identities: Identities = write_identities(
            run_dir, self.server, dt.datetime.now(dt.UTC)
        )
        self.client = Client(self.identities.files.authority, self.identities.admin)

    def start(self) -> None:
        """Start all four; returns when pods can be made in the default namespace."""
        ports, files = self._ports, self.identities.files
        try:
            etcd_client = Client(files.etcd_authority, files.etcd_client)
            data = self._run_dir / "etcd"
            ports.release("etcd-peer")
            etcd = self._launch("etcd", flags.etcd(files, data, ports["etcd"], ports["etcd-peer"]))
            self._await_health(etcd, "/health", etcd_client)
            apiserver = self._launch(
                "apiserver",
                flags.apiserver(files, ports["etcd"], ports["apiserver"]),
                patience_s=_APISERVER_STOP_S,
            )
            self._await_health(apiserver, "/readyz", self.client)
            manager = self._launch(
                "controller-manager", flags.controller_manager(files, ports["controller-manager"])
            )
            scheduler = self._launch("scheduler", flags.scheduler(files, ports["scheduler"]))
            self._await_health(manager, "/healthz", self.client)
            self._await_health(scheduler, "/readyz", self.client)
        finally:
            ports.release()
        self._await_service_account()

    def _launch(self, name: str, arguments: Sequence[str], *, patience_s: float = 5.0) -> Process:
        program = name if name == "etcd" else f"kube-{name}"
        command: list[str | Path] = [self._tools[program], *arguments]
        log = self._run_dir / "logs" / f"{name}.log"
        self._ports.release(name)
        return self._group.start(Process(name, command, log, patience_s=patience_s))

    def _await_health(self, process: Process, path: str, client: Client) -> None:
        url = self._url(process.name) + path

        def question() -> str | None:
            client.get(url)
            return None

        what = f"{process.name} (log: {process.log})"
        wait_for_answer(what, question, self._group.check, START_PATIENCE_S)

    def _await_service_account(self) -> None:
        """Pods are refused until the controller manager has made their namespace's account."""
        url = f"{self.server}/api/v1/namespaces/default/serviceaccounts/default"

        def question() -> str | None:
            self.client.get(url)
            return None

        wait_for_answer("service account", question, self._group.check, START_PATIENCE_S)

    def _url(self, name: str) -> str:
        return f"https://{LOOPBACK}:{self._ports[name]}"
