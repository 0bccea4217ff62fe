"""Values of the downward API: fields of the pod and resource figures of its containers. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from disaggpair_bed.node.errors import SpecError
from disaggpair_bed.node.quantity import in_units
from disaggpair_bed.node.spec import Container, Object, Pod

_KEYED = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")


@dataclass(frozen=True)
class Placement:
    """Where a pod runs: what its own object does not say yet."""

    node: str
    pod_ip: str
    host_ip: str
    allocatable: Mapping[str, str]
    """Stands in for limits that a container does not set."""
    server_host: str
    server_port: str


def field_value(path: str, pod: Pod, place: Placement) -> str:
    """The value of a `fieldRef` in an environment variable or a volume file."""
    keyed = _KEYED.fullmatch(path)
    if keyed:
        values = pod.labels if keyed[1] == "labels" else pod.annotations
        return values.get(keyed[2], "")
    values = {
        "metadata.name": pod.name,
        "metadata.namespace": pod.namespace,
        "metadata.uid": pod.uid,
        "metadata.labels": _lines(pod.labels),
        "metadata.annotations": _lines(pod.annotations),
        "spec.nodeName": place.node,
        "spec.serviceAccountName": pod.service_account,
        "status.podIP": place.pod_ip,
        "status.podIPs": place.pod_ip,
        "status.hostIP": place.host_ip,
        "status.hostIPs": place.host_ip,
    }
    if path not in values:
        raise SpecError(
            f"fieldPath {path!r} is not supported; allowed: {', '.join(sorted(values))}"
        )
    return values[path]


def resource_value(ref: Object, container: Container, pod: Pod, place: Placement) -> str:
    """The value of a `resourceFieldRef`, in whole units of its divisor."""
    name = ref.get("containerName")
    if name:
        container = next(c for c in (*pod.init_containers, *pod.containers) if c.name == name)
    kind, _, resource = str(ref["resource"]).partition(".")
    if kind == "limits":
        text = container.limits.get(resource) or place.allocatable.get(resource, "0")
    elif kind == "requests":
        text = container.requests.get(resource, "0")
    else:
        raise SpecError(f"resource {ref['resource']!r} must begin with limits. or requests.")
    return str(in_units(text, str(ref.get("divisor", "1"))))


def _lines(values: Mapping[str, str]) -> str:
    def quoted(text: str) -> str:
        for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\t", "\\t")):
            text = text.replace(plain, escaped)
        return f'"{text}"'

    return "\n".join(f"{key}={quoted(value)}" for key, value in sorted(values.items()))
