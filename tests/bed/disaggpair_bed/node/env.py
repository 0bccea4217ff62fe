"""A container's environment, command and arguments. Pure: the objects referred to are passed in."""

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from disaggpair_bed.node.downward import Placement, field_value, resource_value
from disaggpair_bed.node.errors import MissingReference, SpecError
from disaggpair_bed.node.expand import expand
from disaggpair_bed.node.images import Image
from disaggpair_bed.node.spec import Container, Object, Pod

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Sources:
    """ConfigMaps and Secrets by name; None stands for one that does not exist."""

    config_maps: Mapping[str, Object | None] = field(default_factory=dict)
    secrets: Mapping[str, Object | None] = field(default_factory=dict)

    def data(self, kind: str, name: str) -> Mapping[str, bytes] | None:
        """The entries of a `ConfigMap` or `Secret`; None when it does not exist."""
        obj = (self.config_maps if kind == "ConfigMap" else self.secrets).get(name)
        if obj is None:
            return None
        encoded = obj.get("data" if kind == "Secret" else "binaryData") or {}
        data = {key: base64.b64decode(value) for key, value in encoded.items()}
        if kind == "ConfigMap":
            data |= {key: value.encode() for key, value in (obj.get("data") or {}).items()}
        return data


def references(container: Container) -> Iterator[tuple[str, str]]:
    """Kind and name of each ConfigMap and Secret the environment needs."""
    for entry in container.env_from:
        for key, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
            if key in entry:
                yield kind, entry[key]["name"]
    for entry in container.env:
        source = entry.get("valueFrom") or {}
        for key, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
            if key in source:
                yield kind, source[key]["name"]


def pod_env(container: Container, pod: Pod, place: Placement, sources: Sources) -> dict[str, str]:
    """What the pod sets, `env` over `envFrom` over the API server's address.

    Raises MissingReference for an object or key that is not there and not optional.
    """
    service = {
        "KUBERNETES_SERVICE_HOST": place.server_host,
        "KUBERNETES_SERVICE_PORT": place.server_port,
        "KUBERNETES_SERVICE_PORT_HTTPS": place.server_port,
    }
    env: dict[str, str] = {}
    for entry in container.env_from:
        env |= _from_object(entry, sources)
    for entry in container.env:
        if entry.get("valueFrom"):
            value = _from_source(entry["valueFrom"], container, pod, place, sources)
        else:
            value = expand(entry.get("value") or "", service | env)
        if value is not None:
            env[entry["name"]] = value
    return service | env


def process_env(
    image: Image, pod_values: Mapping[str, str], scratch: str, hostname: str
) -> dict[str, str]:
    """The whole environment: the pod's values over the image's over the node's few own."""
    env = {"HOME": scratch, "TMPDIR": scratch, "HOSTNAME": hostname, "LANG": "C.UTF-8"}
    env |= {"PATH": SYSTEM_PATH, **image.env}
    env["PATH"] = ":".join((*image.path, env["PATH"]))
    return {**env, **pod_values}


def argv(container: Container, image: Image, pod_values: Mapping[str, str]) -> list[str]:
    """Command and arguments with `$(NAME)` replaced by the pod's values, not by the image's."""
    command = container.command or image.entrypoint
    words = [expand(word, pod_values) for word in (*command, *container.args)]
    if not words:
        raise SpecError(f"container {container.name} has no command and its image no entrypoint")
    return words


def _from_object(entry: Object, sources: Sources) -> dict[str, str]:
    kind = "ConfigMap" if "configMapRef" in entry else "Secret"
    ref = entry["configMapRef" if kind == "ConfigMap" else "secretRef"]
    data = sources.data(kind, ref["name"])
    if data is None:
        if ref.get("optional"):
            return {}
        raise MissingReference(f"{kind.lower()} {ref['name']!r} not found")
    return {entry.get("prefix", "") + key: value.decode() for key, value in data.items()}


def _from_source(
    source: Object, container: Container, pod: Pod, place: Placement, sources: Sources
) -> str | None:
    if "fieldRef" in source:
        return field_value(source["fieldRef"]["fieldPath"], pod, place)
    if "resourceFieldRef" in source:
        return resource_value(source["resourceFieldRef"], container, pod, place)
    for key, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
        if key in source:
            return _from_key(source[key], kind, sources)
    raise SpecError(f"valueFrom {sorted(source)} is not supported by process nodes")


def _from_key(ref: Object, kind: str, sources: Sources) -> str | None:
    data = sources.data(kind, ref["name"])
    if data is not None and ref["key"] in data:
        return data[ref["key"]].decode()
    if ref.get("optional"):
        return None
    if data is None:
        raise MissingReference(f"{kind.lower()} {ref['name']!r} not found")
    raise MissingReference(f"couldn't find key {ref['key']} in {kind} {ref['name']}")
