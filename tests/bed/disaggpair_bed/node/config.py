"""The configuration file of `disaggpair-bed nodes`.

Relative paths in it are taken from the folder the file lies in.
"""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from disaggpair_bed.node.errors import ConfigError
from disaggpair_bed.node.quantity import parse_quantity

KUBELET_PORT = 10250


@dataclass(frozen=True)
class NodeConfig:
    """One process node."""

    name: str
    kubeconfig: Path
    """Credentials of user `system:node:NAME`, group `system:nodes`."""
    address: str
    """The node's own loopback address: InternalIP, hostIP, and where the log endpoint listens."""
    pod_prefix: str
    """Leading part of the pods' addresses, two or three octets: `127.11.0` or `127.11`."""
    zone: str
    instance_type: str
    cpu: str = "16"
    memory: str = "64Gi"
    ephemeral_storage: str = "1Ti"
    pods: int = 110
    gpus: int = 0
    efa: int = 0
    hollow: bool = False
    """True: pods become Ready without any process, for tests of scale."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels beside the usual ones. NodeRestriction refuses some."""
    port: int = KUBELET_PORT
    serving_cert: Path | None = None
    """PEM certificate of the log endpoint; without it the node serves no logs."""
    serving_key: Path | None = None
    client_ca: Path | None = None
    """PEM authority of the one client that may ask for logs, the API server."""
    client_name: str = "kube-apiserver-kubelet-client"
    """Common name that client's certificate must have."""

    @property
    def region(self) -> str:
        """The zone without its last letter, as AWS names them."""
        return self.zone.rstrip("abcdefghijklmnopqrstuvwxyz") or self.zone


@dataclass(frozen=True)
class BedConfig:
    """All nodes that one process runs."""

    nodes: tuple[NodeConfig, ...]
    run_dir: Path
    """Where pods' volumes, logs and scratch directories are kept while they exist."""
    images: Path | None = None
    server: str | None = None
    """URL of the API server; None takes the one in each node's kubeconfig."""
    backoff_s: float = 10.0
    """First wait before a crashed container starts again; doubles up to 30 times itself."""
    refresh_s: float = 60.0
    """Time between two looks at the ConfigMaps, Secrets and tokens behind mounted volumes."""
    shutdown_s: float = 5.0
    """How long containers may take to stop when the node process itself is asked to end."""


_BED_FIELDS = {
    "server": str,
    "runDir": Path,
    "images": Path,
    "backoffSeconds": float,
    "refreshSeconds": float,
    "shutdownSeconds": float,
}
_BED_NAMES = {
    "runDir": "run_dir",
    "backoffSeconds": "backoff_s",
    "refreshSeconds": "refresh_s",
    "shutdownSeconds": "shutdown_s",
}
_NODE_FIELDS = {
    "name": str,
    "kubeconfig": Path,
    "address": str,
    "podPrefix": str,
    "zone": str,
    "instanceType": str,
    "cpu": str,
    "memory": str,
    "ephemeralStorage": str,
    "pods": int,
    "gpus": int,
    "efa": int,
    "hollow": bool,
    "labels": dict,
    "port": int,
    "servingCert": Path,
    "servingKey": Path,
    "clientCA": Path,
    "clientName": str,
}
_NODE_REQUIRED = ("name", "kubeconfig", "address", "podPrefix", "zone", "instanceType")
_NODE_NAMES = {"clientCA": "client_ca"}
_WANTED = {
    str: "a string",
    Path: "a path",
    int: "a whole number of at least 0",
    float: "a number above 0",
    bool: "true or false",
    dict: "a map of strings",
}


def load_config(path: Path) -> BedConfig:
    """Read and check a configuration file; raises ConfigError with one sentence."""
    try:
        raw = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as exc:
        raise ConfigError(f"{path} cannot be read as YAML: {exc}") from exc
    return parse_config(raw, str(path), path.parent)


def parse_config(raw: Any, source: str, base: Path) -> BedConfig:
    """The configuration in a parsed file; `source` names it in messages."""
    if not isinstance(raw, dict):
        raise ConfigError(f"{source} must be a map with `nodes` and `runDir`, but is {raw!r}")
    entries = raw.get("nodes")
    if not isinstance(entries, list) or not entries:
        raise ConfigError(f"{source}: nodes is {entries!r}: it must be a list of at least one node")
    bed = {key: value for key, value in raw.items() if key != "nodes"}
    values = _read(bed, source, base, _BED_FIELDS, ("runDir",), _BED_NAMES)
    nodes = tuple(_node(entry, f"{source}: nodes[{i}]", base) for i, entry in enumerate(entries))
    for what in ("name", "address"):
        seen = [getattr(node, what) for node in nodes]
        twice = sorted({value for value in seen if seen.count(value) > 1})
        if twice:
            raise ConfigError(
                f"{source}: two nodes have the {what} {twice[0]!r}: it must be unique"
            )
    return BedConfig(nodes=nodes, **values)


def _node(raw: Any, where: str, base: Path) -> NodeConfig:
    if not isinstance(raw, dict):
        raise ConfigError(f"{where} is {raw!r}: it must be a map")
    node = NodeConfig(**_read(raw, where, base, _NODE_FIELDS, _NODE_REQUIRED, _NODE_NAMES))
    if not _is_loopback(node.address):
        raise ConfigError(
            f"{where}.address is {node.address!r}: it must be an address in 127.0.0.0/8"
        )
    if not re.fullmatch(r"127(\.\d{1,3}){1,2}", node.pod_prefix):
        raise ConfigError(
            f"{where}.podPrefix is {node.pod_prefix!r}: it must be two or three octets, "
            "such as 127.11.0"
        )
    for name, text in (
        ("cpu", node.cpu),
        ("memory", node.memory),
        ("ephemeralStorage", node.ephemeral_storage),
    ):
        try:
            parse_quantity(text)
        except ValueError as exc:
            raise ConfigError(f"{where}.{name}: {exc}") from exc
    if (node.serving_cert is None) != (node.serving_key is None):
        raise ConfigError(f"{where} needs servingCert and servingKey together, or neither")
    if node.serving_cert is not None and node.client_ca is None:
        raise ConfigError(
            f"{where}.clientCA is missing: with servingCert it says who may read logs"
        )
    return node


def _read(
    raw: Mapping[str, Any],
    where: str,
    base: Path,
    fields: Mapping[str, type],
    required: tuple[str, ...],
    names: Mapping[str, str],
) -> dict[str, Any]:
    unknown = sorted(set(raw) - set(fields))
    if unknown:
        raise ConfigError(f"{where}.{unknown[0]} is unknown; allowed: {', '.join(sorted(fields))}")
    for name in required:
        if name not in raw:
            raise ConfigError(f"{where}.{name} is missing: it must be {_WANTED[fields[name]]}")
    return {
        names.get(name, _snake(name)): _value(raw[name], fields[name], f"{where}.{name}", base)
        for name in fields
        if name in raw
    }


def _value(value: Any, kind: type, where: str, base: Path) -> Any:
    good: bool
    if kind is bool or kind is str:
        good = isinstance(value, kind)
    elif kind is int:
        good = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    elif kind is float:
        good = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    elif kind is Path:
        good = isinstance(value, str) and value != ""
    else:
        good = isinstance(value, dict) and all(
            isinstance(text, str) for pair in value.items() for text in pair
        )
    if not good:
        raise ConfigError(f"{where} is {value!r}: it must be {_WANTED[kind]}")
    return base / value if kind is Path else value


def _snake(name: str) -> str:
    return re.sub(r"[A-Z]", lambda match: "_" + match[0].lower(), name)


def _is_loopback(text: str) -> bool:
    try:
        return ipaddress.IPv4Address(text).is_loopback
    except ValueError:
        return False
