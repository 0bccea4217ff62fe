"""The DisaggPair API, version v1alpha1: the one source of the CRD, its rules and its reference.

Field text comes from the attribute docstrings. Status is a plain record that the operator writes.
"""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from disaggpair_connector.contract import EXPIRY_MARGIN_S
from disaggpair_operator.api.arguments import (
    OWNED_ARGUMENT_CEL,
    OWNED_VARIABLE_CEL,
    owned_arguments,
    owned_variables,
)
from disaggpair_operator.api.rules import Part, Rule, given
from disaggpair_operator.api.versions import VERSION_TAG, version_of_tag
from disaggpair_operator.names import ZONE_LABEL

Name = Annotated[
    str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$")
]
LabelValue = Annotated[
    str,
    Field(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?$"),
]
Quantity = Annotated[
    str, Field(max_length=32, pattern=r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$")
]
Argument = Annotated[str, Field(min_length=1, max_length=2048)]

# A value of the command line that cannot be read as a flag.
_WORD = r"[^-\s]\S*"

HANDLE_TTL_S = 450
DECODE_TTL_S = 480
TENSOR_PARALLEL_SIZE = 8
EFA_DEVICES = 16


QUEUE_MARGIN_S = 30
"""Seconds a turn may wait at P between the router's look-up and the read."""


class KeyRef(Part):
    """A key of a Secret in the pair's namespace."""

    name: Name
    """Name of the Secret."""
    key: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]
    """Key in the Secret."""


class EnvVar(Part):
    """One environment variable of an engine."""

    name: Annotated[
        str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z][-._a-zA-Z0-9]*$")
    ]
    """Name of the variable."""
    value: Annotated[str, Field(max_length=4096)] = ""
    """Value of the variable."""
    secret_key_ref: KeyRef | None = None
    """Take the value from a Secret instead."""

    rules = (
        Rule(
            cel="!(has(self.secretKeyRef) && has(self.value) && self.value != '')",
            message="an entry of env has either value or secretKeyRef, not both",
            check=lambda self: self.secret_key_ref is None or not self.value,
        ),
    )


def _once_each(env: list[EnvVar]) -> list[EnvVar]:
    """Refuse a repeated name, as the API server does for a list that is a map."""
    names = [entry.name for entry in env]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"names {', '.join(repeated)} more than once; each variable is set once")
    return env


Args = Annotated[list[Argument], Field(max_length=64)]
Env = Annotated[
    list[EnvVar],
    AfterValidator(_once_each),
    Field(
        max_length=64,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    ),
]


_RENDERED = "the operator renders it for both roles from spec.model, spec.kvTransfer and the role"
_SET = "the operator sets it on both roles"


def _owned_rules(where: str) -> tuple[Rule, ...]:
    """Rules that keep the operator's own engine arguments and variables out of a part."""
    return (
        Rule(
            cel=f"!has(self.args) || self.args.all(a, !({OWNED_ARGUMENT_CEL}))",
            message=(
                f"{where}.args must not set KV transfer, model, bind address, parallelism, prefix "
                f"caching or block size: {_RENDERED}"
            ),
            check=lambda self: not owned_arguments(self.args),
            explain=lambda self: (
                f"{where}.args must not set {', '.join(owned_arguments(self.args))}: {_RENDERED}"
            ),
            field_path=".args",
        ),
        Rule(
            cel=f"!has(self.env) || self.env.all(e, !({OWNED_VARIABLE_CEL}))",
            message=(
                f"{where}.env must not set VLLM_NIXL_*, FI_PROVIDER, POD_IP, VLLM_HOST_IP or "
                f"VLLM_CONFIG_ROOT: {_SET}"
            ),
            check=lambda self: not owned_variables(_names(self.env)),
            explain=lambda self: (
                f"{where}.env must not set {', '.join(owned_variables(_names(self.env)))}: {_SET}"
            ),
            field_path=".env",
        ),
    )


def _names(env: list[EnvVar]) -> list[str]:
    return [entry.name for entry in env]


class ModelCache(Part):
    """Where model files are kept on a node. Exactly one of the fields."""

    claim: Name | None = None
    """Name of a PersistentVolumeClaim."""
    host_path: Annotated[str, Field(min_length=2, max_length=1024, pattern=r"^/[^:]+$")] | None = (
        None
    )
    """Absolute folder of the node."""
    ephemeral: bool = False
    """A volume that lives and ends with the pod."""

    rules = (
        Rule(
            cel=(
                "[has(self.claim), has(self.hostPath), has(self.ephemeral) && self.ephemeral]"
                ".filter(x, x).size() == 1"
            ),
            message="spec.model.cache needs exactly one of claim, hostPath and ephemeral: true",
            check=lambda self: (
                [self.claim is not None, self.host_path is not None, self.ephemeral].count(True)
                == 1
            ),
        ),
    )


class Model(Part):
    """The model both roles load."""

    name: Annotated[str, Field(min_length=1, max_length=1024, pattern=rf"^{_WORD}$")]
    """Model as vLLM is told: a hub name or a folder in the image or cache. Both roles get the same
    string, because it is part of vLLM's compatibility hash."""
    served_name: Annotated[str, Field(max_length=253, pattern=rf"^$|^{_WORD}$")] = ""
    """Name clients use in requests. Default: `name`."""
    revision: Annotated[str, Field(max_length=253, pattern=rf"^$|^{_WORD}$")] = ""
    """Revision of the model on its hub. Default: the hub's."""
    cache: ModelCache | None = None
    """Where downloaded files are kept. Default: in the container, lost with it."""
    token_secret_ref: KeyRef | None = None
    """Secret key with the hub's access token, given to the engines as HF_TOKEN."""


class Engine(Part):
    """The vLLM engine of both roles.

    There is one image, because version and connector are in vLLM's compatibility hash.
    """

    image: Annotated[str, Field(min_length=1, max_length=512, pattern=r"^\S+$")]
    """Container image with vLLM, NIXL and, for the DisaggPair connector, our wheel."""
    version: Annotated[str, Field(max_length=32, pattern=r"^$|^[0-9]+\.[0-9]+(\.[0-9]+)?.*$")] = ""
    """vLLM's version in the image, such as 0.33.0. Default: read from the image's tag."""
    allow_untested_version: bool = False
    """Accept a vLLM outside the range that is known to be safe; the condition EngineSupported then
    says what is at risk."""
    connector: Literal["DisaggPair", "Nixl"] = "DisaggPair"
    """KV connector in both engines: ours, or vLLM's own NixlConnector."""
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When the image is pulled."""
    args: Args = []
    """More vLLM arguments for both roles."""
    env: Env = []
    """More environment variables for both roles."""

    rules = (
        *_owned_rules("spec.engine"),
        Rule(
            cel=(
                f"(has(self.version) && self.version != '') || self.image.matches(r'{VERSION_TAG}')"
            ),
            message=(
                "spec.engine.version is required when the image's tag does not begin with vLLM's "
                "version, such as v0.33.0"
            ),
            check=lambda self: bool(self.version) or version_of_tag(self.image) is not None,
            field_path=".version",
        ),
    )


class Toleration(Part):
    """A taint the engines tolerate."""

    key: Annotated[str, Field(max_length=316)] = ""
    """Key of the taint; empty with operator Exists tolerates all."""
    operator: Literal["Exists", "Equal"] = "Exists"
    """How the value is compared."""
    value: Annotated[str, Field(max_length=63)] = ""
    """Value of the taint for operator Equal."""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""
    """Effect of the taint; empty matches all."""

    rules = (
        Rule(
            cel=(
                f"{given('self.operator', 'Exists')} == 'Equal' ? "
                f"{given('self.key', '')} != '' : {given('self.value', '')} == ''"
            ),
            message="a toleration has a value with operator Equal only, and then a key too",
            check=lambda self: self.key != "" if self.operator == "Equal" else self.value == "",
        ),
    )


class Placement(Part):
    """Where the engines run."""

    zone: LabelValue
    """Availability zone of both roles (label topology.kubernetes.io/zone). EFA does not cross
    zones, so this is required and a hard rule."""
    instance_types: Annotated[list[LabelValue], Field(min_length=1, max_length=32)] = [
        "p5en.48xlarge",
        "p5e.48xlarge",
        "ml.p5en.48xlarge",
        "ml.p5e.48xlarge",
    ]
    """Allowed values of the node label node.kubernetes.io/instance-type. Default: H200 types."""
    node_selector: Annotated[
        dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=16)
    ] = {}
    """More node labels that both roles need. The zone belongs into `zone`."""
    tolerations: Annotated[list[Toleration], Field(max_length=16)] = [
        Toleration(key="nvidia.com/gpu", operator="Exists", effect="NoSchedule")
    ]
    """Taints both roles tolerate."""
    topology_key: Literal["kubernetes.io/hostname"] = "kubernetes.io/hostname"
    """P and D never share one value of this node label: NIXL over EFA fails within a host."""

    rules = (
        Rule(
            cel=(
                f"!has(self.nodeSelector) || !('{ZONE_LABEL}' in self.nodeSelector) || "
                f"self.nodeSelector['{ZONE_LABEL}'] == self.zone"
            ),
            message=(
                f"spec.placement.nodeSelector must not have another {ZONE_LABEL} than "
                "spec.placement.zone"
            ),
            message_cel=(
                f"'spec.placement.nodeSelector has {ZONE_LABEL} ' + "
                f"self.nodeSelector['{ZONE_LABEL}'] + ', but spec.placement.zone is ' + self.zone "
                "+ '; leave the label out of nodeSelector'"
            ),
            check=lambda self: self.node_selector.get(ZONE_LABEL, self.zone) == self.zone,
            explain=lambda self: (
                f"spec.placement.nodeSelector has {ZONE_LABEL} {self.node_selector[ZONE_LABEL]}, "
                f"but spec.placement.zone is {self.zone}; leave the label out of nodeSelector"
            ),
            field_path=".nodeSelector",
        ),
    )


class Fabric(Part):
    """The network between P and D."""

    type: Literal["EFA", "TCP"] = "EFA"
    """EFA: libfabric with the efa provider only, NIXL backend LIBFABRIC. TCP: NIXL backend UCX; for
    trials, slow."""
    devices: Annotated[int, Field(ge=0, le=32)] = EFA_DEVICES
    """EFA devices of each engine pod (resource vpc.amazonaws.com/efa); p5en has up to 16, p5e up to
    32. With type TCP none are asked for."""
    hugepages: Annotated[str, Field(max_length=16, pattern=r"^$|^[0-9]+(Mi|Gi)$")] = ""
    """2 MiB huge pages of each engine pod, such as 5120Mi. Nodes without preallocated pages cannot
    take such a pod. Default: none."""
    security: Literal["IPCLock", "Privileged"] = "IPCLock"
    """IPCLock adds one capability; Privileged removes the pod's isolation from the node, GPUs
    included."""

    rules = (
        Rule(
            cel=(
                f"{given('self.type', 'EFA')} != 'EFA' || {given('self.devices', EFA_DEVICES)} > 0"
            ),
            message="spec.fabric.devices is 0, but must be at least 1 with type EFA",
            check=lambda self: self.type != "EFA" or self.devices > 0,
            field_path=".devices",
        ),
    )


class DirectTurns(Part):
    """Turns that D computes alone. Reserved."""

    max_new_tokens: Annotated[int, Field(ge=1, le=1_048_576)] = 1024
    """Most new tokens of a turn that may go to D alone."""
    step_tokens: Annotated[int, Field(ge=64, le=65_536)] = 512
    """D's prefill step for such turns, in tokens."""


class KVTransfer(Part):
    """One KV-transfer configuration for both roles. A role cannot override it."""

    bidirectional: bool = True
    """P reads the KV of earlier turns back from D."""
    decode_ttl_seconds: Annotated[int, Field(ge=60, le=86_400, alias="decodeTTLSeconds")] = (
        DECODE_TTL_S
    )
    """Seconds for which D keeps a finished turn's blocks (decoder_kv_blocks_ttl)."""
    recompute_threshold_tokens: Annotated[int, Field(ge=1, le=1_048_576)] = 64
    """Fewer reusable tokens than this are computed on P and not read (kv_recompute_threshold)."""
    block_size: Literal[16, 32, 64, 128, 256] = 128
    """Tokens per KV block on both roles. Larger blocks make fewer, larger reads."""
    prefill_lease_seconds: Annotated[int, Field(ge=6, le=3600)] = 30
    """Seconds for which P keeps a prompt's blocks for D (kv_lease_duration); D renews it while the
    request waits."""
    direct_turns: DirectTurns | None = None
    """Reserved: turns that D computes alone. Not yet supported."""

    rules = (
        Rule(
            cel="!has(self.directTurns)",
            message="spec.kvTransfer.directTurns is not yet supported by this version; remove it",
            check=lambda self: self.direct_turns is None,
            field_path=".directTurns",
        ),
    )


class Resources(Part):
    """CPU and memory of a container, requested and limited alike."""

    cpu: Quantity | None = None
    """CPUs, such as 8 or 500m."""
    memory: Quantity | None = None
    """Memory, such as 64Gi. A memory-backed /dev/shm counts against it."""


class Role(Part):
    """One role's engines."""

    replicas: Annotated[int, Field(ge=1, le=64)] = 1
    """Engine pods of this role."""
    tensor_parallel_size: Annotated[int, Field(ge=1, le=64)] = TENSOR_PARALLEL_SIZE
    """GPUs one engine spreads its layers over."""
    gpus: Annotated[int, Field(ge=1, le=64)] | None = None
    """GPUs of each pod (resource nvidia.com/gpu). Default: tensorParallelSize."""
    prefix_caching: bool = True
    """The engine's own prefix cache. Off on prefill imitates a P that has evicted everything."""
    args: Args = []
    """More vLLM arguments for this role."""
    env: Env = []
    """More environment variables for this role."""
    resources: Resources = Resources()
    """CPU and memory of the engine. Default: none asked for."""
    shared_memory: Quantity = "16Gi"
    """Size of /dev/shm."""
    startup_seconds: Annotated[int, Field(ge=60, le=14_400)] = 2400
    """Seconds an engine may take until it first answers; loading a large model takes minutes."""
    pod_template: Annotated[
        dict[str, object] | None,
        Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True}),
    ] = None
    """Reserved: a patch of the pod template. Not yet supported."""


def _role_rules(where: str) -> tuple[Rule, ...]:
    """Rules of a role's part, which is at `where` in the object."""
    tensor_parallel_size = given("self.tensorParallelSize", TENSOR_PARALLEL_SIZE)
    return (
        *_owned_rules(where),
        Rule(
            cel=f"!has(self.gpus) || self.gpus >= {tensor_parallel_size}",
            message=f"{where}.gpus must be at least {where}.tensorParallelSize",
            message_cel=(
                f"'{where}.gpus is %d, but must be at least %d, which is "
                f"{where}.tensorParallelSize'.format([self.gpus, {tensor_parallel_size}])"
            ),
            check=lambda self: self.gpus is None or self.gpus >= self.tensor_parallel_size,
            explain=lambda self: (
                f"{where}.gpus is {self.gpus}, but must be at least {self.tensor_parallel_size}, "
                f"which is {where}.tensorParallelSize"
            ),
            field_path=".gpus",
        ),
        Rule(
            cel="!has(self.podTemplate)",
            message=f"{where}.podTemplate is not yet supported by this version; remove it",
            check=lambda self: self.pod_template is None,
            field_path=".podTemplate",
        ),
    )


class Prefill(Role):
    """The prefill role P."""

    rules = _role_rules("spec.prefill")


class Decode(Role):
    """The decode role D."""

    rules = _role_rules("spec.decode")


class Service(Part):
    """The Service in front of the router."""

    type: Literal["ClusterIP", "LoadBalancer", "NodePort"] = "ClusterIP"
    """Kind of Service."""
    port: Annotated[int, Field(ge=1, le=65_535)] = 8000
    """Port clients use."""
    annotations: Annotated[
        dict[str, Annotated[str, Field(max_length=1024)]], Field(max_length=32)
    ] = {}
    """Annotations of the Service, such as a load balancer's."""


class Router(Part):
    """The multi-turn router in front of the pair."""

    replicas: Annotated[int, Field(ge=1, le=16)] = 1
    """Router pods. Handles live in one router's memory in this version, so it must be 1."""
    handle_ttl_seconds: Annotated[int, Field(ge=10, le=86_400, alias="handleTTLSeconds")] = (
        HANDLE_TTL_S
    )
    """Seconds for which a handle is offered to P. At most decodeTTLSeconds - 30."""
    fallback: Literal["SingleEngine", "Refuse"] = "SingleEngine"
    """While no prefill engine is ready: D answers alone, or the turn is refused with 503."""
    auth: dict[str, object] | None = Field(
        default=None, json_schema_extra={"x-kubernetes-preserve-unknown-fields": True}
    )
    """Reserved: how clients prove who they are. Not yet supported."""
    tenants: dict[str, object] | None = Field(
        default=None, json_schema_extra={"x-kubernetes-preserve-unknown-fields": True}
    )
    """Reserved: whose conversations are kept apart. Not yet supported."""
    service: Service = Service()
    """The Service in front of the router."""
    resources: Resources = Resources()
    """CPU and memory of the router. Default: none asked for."""

    rules = (
        Rule(
            cel="!has(self.replicas) || self.replicas == 1",
            message=(
                "spec.router.replicas must be 1: handles live in the router's memory, and a second "
                "replica would not find them"
            ),
            check=lambda self: self.replicas == 1,
            field_path=".replicas",
        ),
        Rule(
            cel="!has(self.auth)",
            message="spec.router.auth is not yet supported by this version; remove it",
            check=lambda self: self.auth is None,
            field_path=".auth",
        ),
        Rule(
            cel="!has(self.tenants)",
            message="spec.router.tenants is not yet supported by this version; remove it",
            check=lambda self: self.tenants is None,
            field_path=".tenants",
        ),
    )


class Rollout(Part):
    """How a change reaches the engines."""

    strategy: Literal["Auto", "Surge", "InPlace"] = "Auto"
    """Auto replaces pods role by role without extra GPUs. Surge and InPlace are reserved."""
    drain_seconds: Annotated[int, Field(ge=0, le=3600)] = 60
    """Seconds an engine gets to finish its requests before it ends."""

    rules = (
        Rule(
            cel="!has(self.strategy) || self.strategy == 'Auto'",
            message="spec.rollout.strategy must be Auto: this version supports no other",
            check=lambda self: self.strategy == "Auto",
            field_path=".strategy",
        ),
    )


_HANDLE_TTL = given("self.router.handleTTLSeconds", HANDLE_TTL_S)
_DECODE_TTL = given("self.kvTransfer.decodeTTLSeconds", DECODE_TTL_S)
_TTL_REASON = f"a turn may wait at P, and P declines a handle in its last {EXPIRY_MARGIN_S} seconds"


class Spec(Part):
    """What the user wants."""

    model: Model
    """The model both roles load."""
    engine: Engine
    """The vLLM engine of both roles."""
    placement: Placement
    """Where the engines run."""
    fabric: Fabric = Fabric()
    """The network between P and D."""
    kv_transfer: KVTransfer = KVTransfer()
    """One KV-transfer configuration for both roles."""
    prefill: Prefill = Prefill()
    """The prefill role P."""
    decode: Decode = Decode()
    """The decode role D."""
    router: Router = Router()
    """The multi-turn router."""
    rollout: Rollout = Rollout()
    """How a change reaches the engines."""
    suspend: bool = False
    """Scale engines and router to zero and keep the object."""

    rules = (
        Rule(
            cel=f"{_HANDLE_TTL} + {QUEUE_MARGIN_S} <= {_DECODE_TTL}",
            message=(
                "spec.router.handleTTLSeconds must be at most spec.kvTransfer.decodeTTLSeconds - "
                f"{QUEUE_MARGIN_S}: {_TTL_REASON}"
            ),
            message_cel=(
                "'spec.router.handleTTLSeconds is %d, but must be at most %d, which is "
                f"spec.kvTransfer.decodeTTLSeconds - {QUEUE_MARGIN_S}: {_TTL_REASON}'"
                f".format([{_HANDLE_TTL}, {_DECODE_TTL} - {QUEUE_MARGIN_S}])"
            ),
            check=lambda self: (
                self.router.handle_ttl_seconds + QUEUE_MARGIN_S
                <= self.kv_transfer.decode_ttl_seconds
            ),
            explain=lambda self: (
                f"spec.router.handleTTLSeconds is {self.router.handle_ttl_seconds}, but must be at "
                f"most {self.kv_transfer.decode_ttl_seconds - QUEUE_MARGIN_S}, which is "
                f"spec.kvTransfer.decodeTTLSeconds - {QUEUE_MARGIN_S}: {_TTL_REASON}"
            ),
            field_path=".router.handleTTLSeconds",
        ),
        Rule(
            cel=(
                f"{given('self.fabric.hugepages', '')} == '' || "
                "(has(self.prefill) && has(self.prefill.resources) && "
                "(has(self.prefill.resources.cpu) || has(self.prefill.resources.memory)) && "
                "has(self.decode) && has(self.decode.resources) && "
                "(has(self.decode.resources.cpu) || has(self.decode.resources.memory)))"
            ),
            message=(
                "spec.fabric.hugepages needs cpu or memory in spec.prefill.resources and "
                "spec.decode.resources: Kubernetes refuses huge pages alone"
            ),
            check=lambda self: (
                not self.fabric.hugepages
                or all(
                    role.resources.cpu or role.resources.memory
                    for role in (self.prefill, self.decode)
                )
            ),
            field_path=".fabric.hugepages",
        ),
    )


# -- status ----------------------------------------------------------------------------------


class Condition(Part):
    """One aspect of the pair, in the shape of metav1.Condition."""

    type: Annotated[str, Field(min_length=1, max_length=316)]
    """Aspect, such as Ready."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    reason: Annotated[str, Field(min_length=1, max_length=1024)]
    """One CamelCase word for programs."""
    message: Annotated[str, Field(max_length=32_768)]
    """A sentence for people."""
    last_transition_time: Annotated[
        str, Field(json_schema_extra={"format": "date-time"}, max_length=64)
    ]
    """When `status` last changed."""
    observed_generation: Annotated[int, Field(ge=0)]
    """Generation of the spec this was said of."""


def _summary(role: dict[str, Any]) -> str:
    return f"{role['ready']}/{role['replicas']}"


class RoleStatus(Part):
    """What is known of one role's pods."""

    replicas: int = 0
    """Pods wanted."""
    ready: int = 0
    """Pods that answer."""
    updated: int = 0
    """Pods of the current revision."""
    nodes: Annotated[list[Annotated[str, Field(max_length=253)]], Field(max_length=64)] = []
    """Nodes the pods run on."""
    zone: Annotated[str, Field(max_length=63)] = ""
    """Zone of those nodes."""
    summary: Annotated[str, Field(max_length=32)] = Field(default_factory=_summary)
    """Pods that answer of pods wanted, such as 1/2. Default: made from `ready` and `replicas`."""


class RolesStatus(Part):
    """Both roles and the router."""

    prefill: RoleStatus = RoleStatus()
    """P."""
    decode: RoleStatus = RoleStatus()
    """D."""
    router: RoleStatus = RoleStatus()
    """The router."""


class Status(Part):
    """What the operator saw."""

    observed_generation: Annotated[int, Field(ge=0)] = 0
    """Generation of the spec the conditions speak of."""
    conditions: Annotated[
        list[Condition],
        Field(
            max_length=32,
            json_schema_extra={
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            },
        ),
    ] = []
    """Accepted, Scheduled, PrefillReady, DecodeReady, RouterReady, Serving, Ready; Reconciling and
    Stalled only while they hold."""
    revision: Annotated[str, Field(max_length=63)] = ""
    """Hash of what both roles share; engines of one revision are paired."""
    roles: RolesStatus = RolesStatus()
    """Pods of each role."""
    endpoint: Annotated[str, Field(max_length=1024)] = ""
    """Base URL of the OpenAI API in the cluster."""
    selector: Annotated[str, Field(max_length=1024)] = ""
    """Label selector of the pair's pods."""


class DisaggPair(Part):
    """A prefill and a decode role of vLLM with a multi-turn router in front of them.

    Both roles have one KV-transfer configuration; P reads the KV of earlier turns back from D.
    """

    spec: Spec
    """What the user wants."""
    status: Status = Status()
    """What the operator saw; written by the operator alone."""
