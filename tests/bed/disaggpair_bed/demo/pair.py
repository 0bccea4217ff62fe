"""A DisaggPair on a cluster of the bed, seen with kubectl as a user sees it."""

import json
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from disaggpair_bed.cluster import Cluster
from disaggpair_bed.controlplane.errors import BedError

POLL_S = 0.5
_CRASHES = 2
"""Crashes of one part after which nothing is expected of it any more."""

_SUMMARIES = ("Ready", "Reconciling")
"""Conditions that repeat what another one says."""


class NotReadyError(BedError):
    """The pair did not become ready; the text says what its conditions said last."""


def wait_ready(
    cluster: Cluster, name: str, patience_s: float, say: Callable[[str], None]
) -> dict[str, Any]:
    """Wait until the pair is Ready, telling every change of its conditions.

    Raises:
        NotReadyError: not within `patience_s`, it stalled, or one part crashes again and again.
    """
    deadline = time.monotonic() + patience_s
    told: dict[str, str] = {}
    crashes: Counter[str] = Counter()
    while True:
        pair = get(cluster, "disaggpair", name)
        conditions = {
            entry["type"]: entry for entry in pair.get("status", {}).get("conditions", [])
        }
        for type_, entry in conditions.items():
            line = f"{entry['status']:7} {entry['reason']:16} {entry['message']}"
            if told.get(type_) != line and type_ not in _SUMMARIES:
                told[type_] = line
                crashes[type_] += entry["reason"] == "CrashLoopBackOff"
                say(f"    {type_:15} {line}")
        if conditions.get("Ready", {}).get("status") == "True":
            return pair
        stalled = conditions.get("Stalled", {}).get("status") == "True"
        if stalled or time.monotonic() > deadline or max(crashes.values(), default=0) > _CRASHES:
            said = conditions.get("Ready", {}).get("message", "no status was written")
            raise NotReadyError(f"DisaggPair {name} is not ready: {said}")
        time.sleep(POLL_S)


def get(cluster: Cluster, kind: str, name: str) -> dict[str, Any]:
    """One object."""
    found: dict[str, Any] = json.loads(cluster.kubectl("get", kind, name, "-o", "json"))
    return found


def pod_addresses(cluster: Cluster, pair: str, role: str, namespace: str = "default") -> list[str]:
    """Addresses of the pair's ready pods of one role."""
    selector = f"disaggpair.dev/pair={pair},disaggpair.dev/role={role}"
    command = ("get", "pods", "-l", selector, "-n", namespace, "-o", "json")
    pods = json.loads(cluster.kubectl(*command))["items"]
    return [
        pod["status"]["podIP"]
        for pod in pods
        if any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"]["conditions"])
    ]
