"""The router, and the Service in front of it. Pure."""

from typing import Annotated, Literal

from pydantic import Field

from disaggpair_operator.api.rules import Part
from disaggpair_operator.api.v1alpha1.auth import Auth
from disaggpair_operator.api.v1alpha1.field_rules import key_rule
from disaggpair_operator.api.v1alpha1.fields import Resources

HANDLE_TTL_S = 450


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
    """CPU and memory of the router. Default: none asked for."""
