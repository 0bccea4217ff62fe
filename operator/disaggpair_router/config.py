"""The router's configuration: one model, filled from a file by the operator or from flags.

The operator's plan renders this model into a ConfigMap, so a field is renamed in one place only.
"""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from disaggpair_connector.contract import EXPIRY_MARGIN_S

Seconds = Annotated[float, Field(gt=0, le=86_400)]
Port = Annotated[int, Field(ge=1, le=65_535)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class StaticEndpoints(_Part):
    """Engines at fixed URLs: outside a cluster, in benchmarks and in tests."""

    kind: Literal["static"] = "static"
    prefill: tuple[str, ...] = Field(min_length=1)
    """Base URLs of the prefill engines, such as `http://10.0.0.4:8000`."""
    decode: tuple[str, ...] = Field(min_length=1)
    """Base URLs of the decode engines."""


class PodEndpoints(_Part):
    """Engines found by watching the pods of one pair by label."""

    kind: Literal["pods"] = "pods"
    namespace: str = Field(min_length=1)
    pair: str = Field(min_length=1)
    """Value of the pair label on the engines' pods."""
    port: Port = 8000
    """The engines' HTTP port, the same on every pod."""


class KVTransfer(_Part):
    """What the router has to know of the engines' KV transfer."""

    bidirectional: bool = True
    """False: every turn is an ordinary prefill/decode turn and no handle is kept."""
    handle_in_stream: bool = False
    """True when the engines put D's handle into a stream (vLLM 0.33 and later). False: the D leg
    is asked without streaming while `bidirectional` is on, and its answer is streamed on."""
    handle_ttl_s: Seconds = 450.0
    """Seconds for which a handle is offered to P after D gave it."""
    decode_ttl_s: Seconds = 480.0
    """Seconds for which D keeps the blocks behind a handle (`decoder_kv_blocks_ttl`)."""

    @model_validator(mode="after")
    def _handle_expires_before_blocks(self) -> Self:
        largest = self.decode_ttl_s - EXPIRY_MARGIN_S
        if self.bidirectional and self.handle_ttl_s >= largest:
            raise ValueError(
                f"handle_ttl_s is {self.handle_ttl_s:g}, but D drops the blocks after "
                f"{self.decode_ttl_s:g} s and P declines the last {EXPIRY_MARGIN_S} s: "
                f"it must be below {largest:g}"
            )
        return self


class Timeouts(_Part):
    """Time limits of one turn, in seconds."""

    connect_s: Seconds = 5.0
    prefill_s: Seconds = 120.0
    """Whole P leg. A P whose read failed under some engine settings never answers."""
    decode_first_byte_s: Seconds = 600.0
    """From the D leg's request to its first byte; a D leg that is not streamed needs as long as
    its whole answer."""
    decode_idle_s: Seconds = 120.0
    """Between two reads of the D leg's body."""
    drain_s: Seconds = 30.0
    """From SIGTERM until streams that still run are cut."""


class Limits(_Part):
    """Bounds on what one router holds in memory."""

    max_body_bytes: int = Field(default=32 * 2**20, ge=1024, le=2**30)
    """Largest request body accepted, in bytes."""
    max_conversations: int = Field(default=100_000, ge=1, le=10_000_000)
    """Handles kept; the least recently stored goes first."""


class RouterConfig(_Part):
    """Everything a router process is told at its start."""

    pair: str = Field(default="static", min_length=1, max_length=253)
    """Name shown in metrics and logs."""
    revision: str = ""
    """Engine revision this router serves; empty pairs engines of any one revision."""
    host: str = ""
    """Address to bind; empty binds all interfaces."""
    port: Port = 8000
    metrics_port: Annotated[int, Field(ge=0, le=65_535)] = 9090
    """Port of /metrics; 0 switches it off."""
    endpoints: Annotated[StaticEndpoints | PodEndpoints, Field(discriminator="kind")]
    kv: KVTransfer = KVTransfer()
    fallback: Literal["SingleEngine", "Refuse"] = "SingleEngine"
    """What happens to a turn while no prefill engine is ready: D answers alone, or 503."""
    conversation_headers: tuple[str, ...] = ("x-conversation-id", "x-session-id")
    """Request headers that may carry the conversation id, first match wins; the body's
    `conversation_id` comes before them."""
    timeouts: Timeouts = Timeouts()
    limits: Limits = Limits()
