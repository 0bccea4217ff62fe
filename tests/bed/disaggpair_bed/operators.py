"""The operator as a process beside a cluster, signed in as the chart's service account.

For tests of the operator against a real API server: it has exactly the rights the chart gives, and
no image or node is needed.
"""

import json
import sys
import urllib.request
from pathlib import Path
from typing import Any, Final

import yaml

from disaggpair_bed.cluster import Cluster
from disaggpair_bed.processes import Process

ROUTER_IMAGE: Final = "example/disaggpair:none"
_CHART: Final = Path(__file__).parents[3] / "charts" / "disaggpair"
_RELEASE: Final = "operator"


class ServiceAccount:
    """The chart's account and rights for one namespace; `remove` takes the cluster-wide ones."""

    def __init__(self, cluster: Cluster, namespace: str, *, everywhere: bool = False) -> None:
        """Rights for this namespace alone, or for all of them when `everywhere`."""
        self._cluster = cluster
        watched = "" if everywhere else namespace
        self._manifest = cluster.helm(
            "template",
            _RELEASE,
            str(_CHART),
            f"--namespace={namespace}",
            f"--set=watchNamespaces={{{watched}}},fullnameOverride={_RELEASE}",
            "--show-only=templates/rbac.yaml",
            "--show-only=templates/serviceaccount.yaml",
        )
        cluster.kubectl("apply", f"--namespace={namespace}", "-f", "-", stdin=self._manifest)
        self._namespace = namespace

    def write_kubeconfig(self, path: Path) -> Path:
        """A file that makes its reader this account."""
        token = self._cluster.kubectl(
            "create", "token", _RELEASE, f"--namespace={self._namespace}"
        ).strip()
        content = yaml.safe_load(self._cluster.kubeconfig.read_text())
        content["users"] = [{"name": "operator", "user": {"token": token}}]
        content["contexts"][0]["context"]["user"] = "operator"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(content))
        return path

    def remove(self) -> None:
        """Delete the account and its rights."""
        self._cluster.kubectl(
            "delete", "--ignore-not-found", "--wait=false", "-f", "-", stdin=self._manifest
        )


class OperatorProcess:
    """One operator for one namespace."""

    def __init__(
        self, kubeconfig: Path, namespace: str, log: Path, metrics_port: int, *flags: str
    ) -> None:
        """`flags` are further flags of `disaggpair operator`. The metrics are on loopback."""
        self.log = log
        self._metrics = f"http://127.0.0.1:{metrics_port}/metrics"
        self._process = Process(
            "operator",
            [
                *(sys.executable, "-m", "disaggpair", "operator"),
                *("--kubeconfig", kubeconfig),
                *(("--namespace", namespace) if namespace else ()),
                *("--router-image", ROUTER_IMAGE),
                *("--router-pull-policy", "Never"),
                *("--metrics-port", str(metrics_port)),
                *("--health-port", "0"),
                *flags,
            ],
            log,
            patience_s=20.0,
        )

    def start(self) -> None:
        """Start it; it begins to work by itself."""
        self._process.start()

    def stop(self) -> None:
        """Tell it to stop and wait for its end."""
        self._process.stop()

    def check(self) -> None:
        """Raise ProcessDiedError when it ended by itself."""
        self._process.check()

    @property
    def running(self) -> bool:
        """Whether it has been started and not ended."""
        return self._process.running

    def lines(self) -> list[dict[str, Any]]:
        """What it logged so far; whatever is no JSON object is kept under `raw`."""
        if not self.log.exists():
            return []
        return [_parsed(line) for line in self.log.read_text().splitlines()]

    def reconciles(self) -> int:
        """Reconciles that ended since its start; 0 until it answers."""
        try:
            with urllib.request.urlopen(self._metrics, timeout=5) as answer:
                text = answer.read().decode()
        except OSError:
            return 0
        return sum(
            int(float(line.rpartition(" ")[2]))
            for line in text.splitlines()
            if line.startswith("disaggpair_reconciles_total")
        )


def _parsed(line: str) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except ValueError:
        fields = None
    return fields if isinstance(fields, dict) else {"raw": line}
