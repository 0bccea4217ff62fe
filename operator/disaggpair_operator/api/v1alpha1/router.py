"""The router, and the Service in front of it. Pure."""

from typing import Annotated, Final, Literal

from pydantic import Field

from disaggpair_operator.api.quantity import amount
from disaggpair_operator.api.rules import Part, Rule, given
from disaggpair_operator.api.v1alpha1.auth import Auth
from disaggpair_operator.api.v1alpha1.bounds import (
    COPIES,
    MAX_REQUEST_BYTES,
    WORKER_BYTES,
    RouterLimits,
    RouterTimeouts,
)
from disaggpair_operator.api.v1alpha1.field_rules import key_rule
from disaggpair_operator.api.v1alpha1.fields import Resources
from disaggpair_operator.api.v1alpha1.observing import Guard, Tracing

HANDLE_TTL_S = 450

TAKEN_CONVERSATION_HEADERS: Final = (
    "authorization",
    "traceparent",
    "tracestate",
    "x-api-key",
    "x-request-id",
)
"""Headers whose value is a caller's or a request's own, in lower case."""

_WORKERS: Final = given("self.workers", 1)
_CPU: Final = "has(self.resources) && has(self.resources.cpu)"
_MEMORY: Final = "has(self.resources) && has(self.resources.memory)"
_NEEDED: Final = (
    f"{_WORKERS} * ({WORKER_BYTES} + "
    f"{COPIES} * {given('self.limits.maxRequestBytes', MAX_REQUEST_BYTES)})"
)
_MEMORY_FORMULA: Final = (
    f"{WORKER_BYTES // 2**20}Mi and {COPIES} times spec.router.limits.maxRequestBytes for each of "
    "spec.router.workers"
)
_HEADERS: Final = "has(self.conversationHeaders)"
_TENANT_HEADER: Final = given("self.auth.tenantHeader", "")


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

    rules = (key_rule("spec.router.service.annotations", "annotations", "annotation"),)


class Router(Part):
    """The multi-turn router in front of the pair."""

    replicas: Annotated[int, Field(ge=1, le=16)] = 1
    """Router pods. More than one need the connector DisaggPair: D then keeps the conversations.
    With Nixl one router does, in its memory."""
    handle_ttl_seconds: Annotated[int, Field(ge=10, le=86_400, alias="handleTTLSeconds")] = (
        HANDLE_TTL_S
    )
    """Seconds for which a handle is offered to P. At most decodeTTLSeconds - 30."""
    fallback: Literal["SingleEngine", "Refuse"] = "SingleEngine"
    """While one role has no ready engine: the other answers alone, or the turn is refused with
    503."""
    auth: Auth | None = None
    """Who may use the pair. Default: everybody who reaches the router."""
    service: Service = Service()
    """The Service in front of the router."""
    resources: Resources = Resources()
    """CPU and memory of a router pod. Default: 1 CPU, and 256Mi and four times
    limits.maxRequestBytes, requested for each of `workers`, without a limit. Memory that is given
    must be at least that."""
    workers: Annotated[int, Field(ge=1, le=64)] = 1
    """Processes of a router pod that serve its port, for more turns than one core takes. More than
    one need the connector DisaggPair, or kvTransfer.bidirectional false: a handle in the memory of
    one is unknown to the others."""
    conversation_headers: Annotated[
        list[Annotated[str, Field(max_length=64, pattern="^[A-Za-z][-_A-Za-z0-9]*$")]],
        Field(max_length=16),
    ] = ["x-conversation-id", "x-session-id"]
    """Request headers that may carry a conversation's id, the first that is there wins; the body's
    `conversation_id` comes before them. An empty list: none does."""
    max_imbalance: Annotated[int, Field(ge=0, le=100_000)] = 16
    """Legs that the D which holds a conversation may have more than the least busy one and still
    decode it. Beyond, another D decodes, and P reads from the holder all the same."""
    tokenize: bool = False
    """Offer `POST /tokenize` and `POST /v1/messages/count_tokens`. They cost an engine time that no
    turn accounts for."""
    timeouts: RouterTimeouts = RouterTimeouts()
    """How long a router waits in a turn."""
    limits: RouterLimits = RouterLimits()
    """How much a router takes and keeps."""
    log_format: Literal["Human", "JSON"] = "Human"
    """Form of the line that is logged for each turn: words, or one JSON object."""
    guard: Guard | None = None
    """Has a sample of turns computed again, to find answers of wrong KV. Default: none."""
    tracing: Tracing | None = None
    """Where traces of turns are sent. Default: none are made, and a client's traceparent reaches
    the engines as it came."""
    debug: bool = False
    """Answer `/debug/conversations` on port 9091 of a router pod's loopback interface, where
    `kubectl port-forward` reaches it and nothing else."""

    rules = (
        Rule(
            cel=(
                f"!({_CPU}) || {_WORKERS} == 1 || "
                f"!quantity(self.resources.cpu).sub({_WORKERS}).isLessThan(quantity('0'))"
            ),
            message=(
                "spec.router.workers must be at most spec.router.resources.cpu, with which they "
                "share the work: give more CPUs or fewer workers"
            ),
            check=lambda self: (
                self.workers == 1
                or self.resources.cpu is None
                or self.workers <= amount(self.resources.cpu)
            ),
            explain=lambda self: (
                f"spec.router.workers is {self.workers}, but must be at most "
                f"spec.router.resources.cpu, which is {self.resources.cpu}: "
                "give more CPUs or fewer workers"
            ),
            field_path=".workers",
        ),
        Rule(
            cel=(
                f"!({_MEMORY}) || "
                f"!quantity(self.resources.memory).sub({_NEEDED}).isLessThan(quantity('0'))"
            ),
            message=(
                f"spec.router.resources.memory must be at least {_MEMORY_FORMULA}: give more "
                "memory or lower maxRequestBytes"
            ),
            check=lambda self: (
                self.resources.memory is None
                or amount(self.resources.memory) >= self.workers * self.limits.process_bytes
            ),
            explain=lambda self: (
                f"spec.router.resources.memory is {self.resources.memory}, but must be at least "
                f"{_mebibytes(self.workers * self.limits.process_bytes)}, which is "
                f"{_MEMORY_FORMULA}: give more memory or lower maxRequestBytes"
            ),
            field_path=".resources.memory",
        ),
        Rule(
            cel=(
                f"!({_HEADERS}) || self.conversationHeaders.all(h, "
                f"!(h.lowerAscii() in [{', '.join(map(repr, TAKEN_CONVERSATION_HEADERS))}]))"
            ),
            message=(
                "spec.router.conversationHeaders must not have "
                f"{', '.join(TAKEN_CONVERSATION_HEADERS[:-1])} or "
                f"{TAKEN_CONVERSATION_HEADERS[-1]}: these mean something else"
            ),
            check=lambda self: not _lower(self) & set(TAKEN_CONVERSATION_HEADERS),
            field_path=".conversationHeaders",
        ),
        Rule(
            cel=(
                f"!({_HEADERS}) || self.conversationHeaders.all(h, "
                f"h.lowerAscii() != {_TENANT_HEADER}.lowerAscii())"
            ),
            message=(
                "spec.router.conversationHeaders must not have spec.router.auth.tenantHeader: a "
                "tenant is no conversation"
            ),
            check=lambda self: (
                self.auth is None or self.auth.tenant_header.lower() not in _lower(self)
            ),
            field_path=".conversationHeaders",
        ),
    )


def _mebibytes(size: int) -> str:
    """As a quantity, rounded up."""
    return f"{-(-size // 2**20)}Mi"


def _lower(router: Router) -> set[str]:
    return {header.lower() for header in router.conversation_headers}
