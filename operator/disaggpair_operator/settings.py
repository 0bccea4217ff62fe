"""What an operator process is told at its start. Pure; `command` fills it from flags."""

from dataclasses import dataclass
from typing import Final, Literal

from disaggpair_operator.errors import BadSettings

LOG_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")
PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
BINDS: Final = ("AllInterfaces", "PodIP")


@dataclass(frozen=True)
class Settings:
    """Settings of one operator process. Raises BadSettings on construction when they disagree."""

    router_image: str
    """Image with the `disaggpair` command, for the router's pods."""
    router_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When the router's image is pulled."""
    kubeconfig: str = ""
    """File to connect with. Empty: `$KUBECONFIG`, then the pod's service account, then
    `~/.kube/config`."""
    namespaces: tuple[str, ...] = ()
    """Namespaces served; empty serves all and needs cluster-wide rights."""
    bind: Literal["AllInterfaces", "PodIP"] = "AllInterfaces"
    """Which address this process and the pods it plans listen on. PodIP lets pods share a host's
    network, as on the test bed's nodes."""
    pod_ip: str = ""
    """This pod's address; needed with PodIP."""
    health_port: int = 8080
    """Port of /healthz; 0 switches it off."""
    metrics_port: int = 9090
    """Port of /metrics; 0 switches it off."""
    log_level: str = "INFO"
    """DEBUG shows the watch library's lines too."""
    resync_s: float = 300.0
    """Seconds between two looks at a pair for which no event arrived. Lower finds a lost event
    sooner and costs reads."""
    workers: int = 4
    """Pairs reconciled at the same time."""

    def __post_init__(self) -> None:
        if not self.router_image:
            raise BadSettings(
                "--router-image is empty: give the image with the `disaggpair` command, "
                "or set ROUTER_IMAGE"
            )
        _one_of("--router-pull-policy", self.router_pull_policy, PULL_POLICIES)
        _one_of("--bind-address", self.bind, BINDS)
        _one_of("--log-level", self.log_level, LOG_LEVELS)
        if self.bind == "PodIP" and not self.pod_ip:
            raise BadSettings(
                "--bind-address is PodIP, but the environment variable POD_IP is empty: "
                "set it from the field status.podIP, or use AllInterfaces"
            )
        for flag, port in (
            ("--health-port", self.health_port),
            ("--metrics-port", self.metrics_port),
        ):
            if not 0 <= port <= 65_535:
                raise BadSettings(f"{flag} is {port}: give 1 to 65535, or 0 to switch it off")
        if self.health_port and self.health_port == self.metrics_port:
            raise BadSettings(f"--health-port and --metrics-port are both {self.health_port}")
        if not 1 <= self.resync_s <= 86_400:
            raise BadSettings(f"--resync-seconds is {self.resync_s:g}: give 1 to 86400")

    @property
    def host(self) -> str:
        """Address this process listens on."""
        return self.pod_ip if self.bind == "PodIP" else "0.0.0.0"  # noqa: S104 - a pod's default

    @property
    def health_url(self) -> str | None:
        """Where the liveness probe is answered, or None when it is off."""
        if not self.health_port:
            return None
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.health_port}/healthz"


def _one_of(flag: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise BadSettings(f"{flag} is {value!r}: give one of {', '.join(allowed)}")
