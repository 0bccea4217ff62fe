"""What the operator saw: a plain record that it alone writes. Pure."""

from typing import Annotated, Literal

from pydantic import Field

from disaggpair_operator.api.rules import Part


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
    summary: Annotated[str, Field(max_length=32)] = ""
    """Pods that answer of pods wanted, such as 1/2: what kubectl's table shows."""


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
    """Accepted, EngineSupported, SecretsFound, Scheduled, PrefillReady, DecodeReady, RouterReady,
    Serving, Ready; Reconciling and Stalled only while they hold."""
    revision: Annotated[str, Field(max_length=63)] = ""
    """Hash of what both roles share; engines of one revision are paired."""
    roles: RolesStatus = RolesStatus()
    """Pods of each role."""
    endpoint: Annotated[str, Field(max_length=1024)] = ""
    """Base URL of the OpenAI API in the cluster."""
    selector: Annotated[str, Field(max_length=1024)] = ""
    """Label selector of the pair's pods."""
