"""Pods as the API server stores them, read into the few types the node works with. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from disaggpair_bed.node.errors import SpecError

Object = Mapping[str, Any]


@dataclass(frozen=True)
class Handler:
    """An action of a probe or a lifecycle hook; exactly one of the fields is set."""

    exec: tuple[str, ...] | None = None
    http: Object | None = None
    tcp: Object | None = None
    sleep_s: float | None = None
    unsupported: str = ""
    """Set alone, for a kind of handler that process nodes do not have: it always fails."""


@dataclass(frozen=True)
class Probe:
    """One probe with the API's defaults filled in; times in seconds."""

    handler: Handler
    initial_delay_s: float = 0.0
    period_s: float = 10.0
    timeout_s: float = 1.0
    success_threshold: int = 1
    failure_threshold: int = 3
    grace_s: float | None = None
    """Overrides the pod's grace period when this probe kills the container."""


@dataclass(frozen=True)
class Mount:
    """A volume mount of a container."""

    volume: str
    path: str
    sub_path: str = ""
    sub_path_expr: str = ""
    read_only: bool = False


@dataclass(frozen=True)
class Container:
    """A container or an init container."""

    name: str
    image: str
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    env: Sequence[Object] = ()
    env_from: Sequence[Object] = ()
    mounts: tuple[Mount, ...] = ()
    ports: Mapping[str, int] = field(default_factory=dict)
    requests: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)
    startup: Probe | None = None
    liveness: Probe | None = None
    readiness: Probe | None = None
    post_start: Handler | None = None
    pre_stop: Handler | None = None
    message_path: str = "/dev/termination-log"
    message_from_logs: bool = False
    """On failure without a message, the end of the log is the termination message."""
    sidecar: bool = False
    """An init container with restartPolicy Always: starts in order, then keeps running."""


@dataclass(frozen=True)
class Pod:
    """A pod; `raw` is what the API server sent, for the fields only one module needs."""

    raw: Object
    name: str
    namespace: str
    uid: str
    init_containers: tuple[Container, ...]
    containers: tuple[Container, ...]
    restart_policy: str
    grace_s: float
    service_account: str
    host_network: bool
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    volumes: Sequence[Object]

    @property
    def key(self) -> str:
        """Namespace and name, for logs and messages."""
        return f"{self.namespace}/{self.name}"

    @property
    def path(self) -> str:
        """The object's path on the API server."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"

    @property
    def hostname(self) -> str:
        """The host name inside the pod."""
        name = self.raw["spec"].get("hostname") or self.name
        return str(name)[:63].rstrip("-.")

    @property
    def deletion_grace_s(self) -> float | None:
        """Seconds the pod may take to stop once it is being deleted; None when it is not."""
        meta = self.raw["metadata"]
        if not meta.get("deletionTimestamp"):
            return None
        return float(meta.get("deletionGracePeriodSeconds") or 0)


def parse_pod(raw: Object) -> Pod:
    """Read a pod that the API server accepted, so its defaults are filled in."""
    meta, spec = raw["metadata"], raw["spec"]
    grace = spec.get("terminationGracePeriodSeconds")
    return Pod(
        raw=raw,
        name=meta["name"],
        namespace=meta["namespace"],
        uid=meta["uid"],
        init_containers=tuple(_container(item) for item in spec.get("initContainers") or ()),
        containers=tuple(_container(item) for item in spec["containers"]),
        restart_policy=spec.get("restartPolicy", "Always"),
        grace_s=float(30 if grace is None else grace),
        service_account=spec.get("serviceAccountName") or "default",
        host_network=bool(spec.get("hostNetwork")),
        labels=meta.get("labels") or {},
        annotations=meta.get("annotations") or {},
        volumes=spec.get("volumes") or (),
    )


def _container(raw: Object) -> Container:
    resources = raw.get("resources") or {}
    lifecycle = raw.get("lifecycle") or {}
    return Container(
        name=raw["name"],
        image=raw.get("image", ""),
        command=tuple(raw.get("command") or ()),
        args=tuple(raw.get("args") or ()),
        working_dir=raw.get("workingDir", ""),
        env=raw.get("env") or (),
        env_from=raw.get("envFrom") or (),
        mounts=tuple(_mount(item) for item in raw.get("volumeMounts") or ()),
        ports={
            item["name"]: item["containerPort"]
            for item in raw.get("ports") or ()
            if item.get("name")
        },
        requests=resources.get("requests") or {},
        limits=resources.get("limits") or {},
        startup=_probe(raw.get("startupProbe")),
        liveness=_probe(raw.get("livenessProbe")),
        readiness=_probe(raw.get("readinessProbe")),
        post_start=_handler(lifecycle.get("postStart")),
        pre_stop=_handler(lifecycle.get("preStop")),
        message_path=raw.get("terminationMessagePath") or "/dev/termination-log",
        message_from_logs=raw.get("terminationMessagePolicy") == "FallbackToLogsOnError",
        sidecar=raw.get("restartPolicy") == "Always",
    )


def _mount(raw: Object) -> Mount:
    return Mount(
        volume=raw["name"],
        path=raw["mountPath"],
        sub_path=raw.get("subPath", ""),
        sub_path_expr=raw.get("subPathExpr", ""),
        read_only=bool(raw.get("readOnly")),
    )


def _probe(raw: Object | None) -> Probe | None:
    handler = _handler(raw)
    if raw is None or handler is None:
        return None
    grace = raw.get("terminationGracePeriodSeconds")
    return Probe(
        handler=handler,
        initial_delay_s=float(raw.get("initialDelaySeconds") or 0),
        period_s=float(raw.get("periodSeconds") or 10),
        timeout_s=float(raw.get("timeoutSeconds") or 1),
        success_threshold=int(raw.get("successThreshold") or 1),
        failure_threshold=int(raw.get("failureThreshold") or 3),
        grace_s=None if grace is None else float(grace),
    )


def _handler(raw: Object | None) -> Handler | None:
    if not raw:
        return None
    if "exec" in raw:
        return Handler(exec=tuple(raw["exec"].get("command") or ()))
    if "httpGet" in raw:
        return Handler(http=raw["httpGet"])
    if "tcpSocket" in raw:
        return Handler(tcp=raw["tcpSocket"])
    if "sleep" in raw:
        return Handler(sleep_s=float(raw["sleep"]["seconds"]))
    if "grpc" in raw:
        return Handler(unsupported="grpc")
    return None


def port_number(port: int | str, container: Container) -> int:
    """A port given by number or by the name of one of the container's ports."""
    if isinstance(port, int):
        return port
    if port.isdigit():
        return int(port)
    if port not in container.ports:
        known = ", ".join(sorted(container.ports)) or "none"
        raise SpecError(
            f"container {container.name} has no port named {port!r}; named ports: {known}"
        )
    return container.ports[port]
