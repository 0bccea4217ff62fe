"""The router, and the Service in front of it. Pure."""

from typing import Annotated, Literal

from pydantic import Field

from disaggpair_operator.api.rules import Part, Rule
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
