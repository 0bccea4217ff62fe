"""Pairs of simulated engines in one namespace, under an operator that the chart installed.

The operator runs as a pod with its own account.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml
from openai import OpenAI

from disaggpair_bed.builders import merged
from disaggpair_bed.cluster import Cluster
from disaggpair_bed.demo.counters import PromptTokens, prompt_tokens
from disaggpair_bed.demo.pair import pod_addresses
from disaggpair_operator.api.crd import crd_yaml

ROOT: Final = Path(__file__).parents[3]
PATIENCE_S: Final = 120.0


class Bench:
    """One namespace with the operator, and what a user does in it."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace

    def kubectl(self, *args: str, stdin: str | None = None) -> str:
        """Run kubectl in the namespace."""
        return self.cluster.kubectl(*args, f"--namespace={self.namespace}", stdin=stdin)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """One object as it is."""
        return dict(json.loads(self.kubectl("get", kind, name, "-o", "json")))

    def apply(self, name: str, changes: dict[str, Any] | None = None) -> None:
        """Apply the example of simulated engines, changed."""
        raw = yaml.safe_load((ROOT / "examples" / "local-sim.yaml").read_text())
        raw = merged(raw, {"metadata": {"name": name}, "spec": changes or {}})
        self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(raw))

    def condition(self, name: str, type_: str) -> dict[str, Any]:
        """A condition of the present generation, or an empty mapping."""
        pair = self.get("disaggpair", name)
        status = pair.get("status", {})
        if status.get("observedGeneration") != pair["metadata"]["generation"]:
            return {}
        return next((c for c in status["conditions"] if c["type"] == type_), {})

    def wait(
        self,
        name: str,
        type_: str,
        status: str,
        holds: Callable[[dict[str, Any]], bool] | None = None,
    ) -> dict[str, Any]:
        """Wait until a condition of this generation has that status."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            seen = self.condition(name, type_)
            if seen.get("status") == status and (holds is None or holds(seen)):
                return seen
            assert time.monotonic() < deadline, self.get("disaggpair", name).get("status")
            time.sleep(0.3)

    def until(self, condition: Callable[[], object]) -> None:
        """Wait until the condition is true of something."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.3)

    def pods(self, name: str, role: str) -> list[dict[str, Any]]:
        """The pods of one role of a pair."""
        selector = f"disaggpair.dev/pair={name},disaggpair.dev/role={role}"
        return list(json.loads(self.kubectl("get", "pods", "-l", selector, "-o", "json"))["items"])

    def address(self, name: str, role: str) -> str:
        """URL of the one pod of a role."""
        (address,) = pod_addresses(self.cluster, name, role, self.namespace)
        return f"http://{address}:8000"

    def client(self, name: str) -> OpenAI:
        """A client of the pair's router."""
        return OpenAI(
            base_url=f"{self.address(name, 'router')}/v1", api_key="none", max_retries=0, timeout=60
        )

    def read_from_d(self, name: str) -> Callable[[], PromptTokens]:
        """The prefill engine's counters, each call since the last."""
        url = self.address(name, "prefill")
        before = [prompt_tokens(url)]

        def since() -> PromptTokens:
            now = prompt_tokens(url)
            added = now.since(before[0])
            before[0] = now
            return added

        return since

    def free(self) -> None:
        """End all pairs: the next test's need the devices of this one's."""
        self.kubectl("delete", "disaggpair", "--all", "--wait=false")
        self.kubectl("delete", "pods", "-l", "disaggpair.dev/pair", "--grace-period=0", "--force")


@contextmanager
def installed(cluster: Cluster, namespace: str) -> Iterator[Bench]:
    """The operator in a namespace of its own, as release `pairs`, while the block runs."""
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=crd_yaml())
    cluster.kubectl("create", "namespace", namespace)
    cluster.helm(
        "install",
        "pairs",
        str(ROOT / "charts" / "disaggpair"),
        f"--namespace={namespace}",
        "--set=crds.install=false,rbac.aggregate=false",
        f"--set=image.tag=dev,settings.bindAddress=PodIP,watchNamespaces={{{namespace}}}",
        "--wait",
        "--timeout=120s",
    )
    yield Bench(cluster, namespace)
    cluster.kubectl("delete", "namespace", namespace, "--wait=false")
