"""The router's configuration: one model, filled from a file by the operator or from flags.

The operator's plan renders this model into a ConfigMap, so a field is renamed in one place only.
"""

import ipaddress
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from disaggpair_connector.contract import EXPIRY_MARGIN_S
from disaggpair_router.configkinds import Part, Port, Seconds, checked_header
from disaggpair_router.endpointconfig import PodEndpoints as PodEndpoints  # part of this model
from disaggpair_router.endpointconfig import StaticEndpoints as StaticEndpoints
from disaggpair_router.guard.config import GuardConfig as GuardConfig  # part of this model
from disaggpair_router.seen.config import Tracing as Tracing  # part of this model
from disaggpair_router.way.config import WayConfig as WayConfig  # part of this model


class LeaseAccess(Part):
    """Where and how the router reaches the lease listeners of our connector."""

    port: Port = 5700
    """Of an engine's first data-parallel rank; the next rank's is one more."""
    data_parallel_size: int = Field(default=1, ge=1, le=1024)
    """Ranks of each decode engine."""
    claim_s: Seconds = 1.0
    """How long a turn waits for a claim before it runs without."""


class KVTransfer(Part):
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

    leases: LeaseAccess | None = None
    """Set when the engines' connector is ours: each D's table of leases is then the truth, which
    this router copies and claims from, and no handle is kept here. Needs the key of the listeners
    in the environment, `DISAGGPAIR_LEASE_KEY`."""
    verified_reads: bool = False
    """True when the engines' connector compares tokens before a read. False: a handle is kept
    only for plain text answers, since a chat template may render reasoning, tool calls and outer
    white space of an earlier answer otherwise than D wrote them."""
    releases_per_s: float = Field(default=20.0, ge=0, le=10_000)
    """Handles that nobody will use are given back to D by a request to P; at most this many each
    second. 0 leaves them to D's time limit."""
    max_held_tokens: int | None = Field(default=None, ge=1)
    """Tokens that handles may keep in the memory of one D; beyond, the oldest is given back. A
    conversation that never returns keeps its blocks for `decode_ttl_s`, so half of D's cache is a
    good bound. None: no bound. With leases D finds room itself and this has no effect."""
    pull_pause_s: Seconds = 60.0
    """Seconds for which a P gets no handles of a D after it did not answer a turn with one."""

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


class Timeouts(Part):
    """Time limits of one turn, in seconds."""

    connect_s: Seconds = 5.0
    """For a connection to an engine."""
    prefill_s: Seconds = 120.0
    """Whole P leg. A P whose read failed under some engine settings never answers."""
    decode_first_byte_s: Seconds = 600.0
    """From the D leg's request to its first byte; a D leg that is not streamed needs as long as
    its whole answer."""
    decode_idle_s: Seconds = 120.0
    """Between two reads of the D leg's body."""
    keepalive_s: float = Field(default=0.0, ge=0, le=3_600)
    """Seconds of silence after which a client that streams gets an SSE comment while it waits
    for the first token; 0 for none. The first comment fixes the status at 200: an error after it
    is an event of the stream."""
    probe_s: Seconds = 2.0
    """Between two health checks of a static endpoint, and the time limit of one."""
    canary_s: float = Field(default=10.0, ge=0, le=3_600)
    """Seconds without an answer after which an engine is asked for one token, to find one that
    takes requests and answers none; 0 for never."""
    canary_limit_s: Seconds = 15.0
    """For that answer. An engine that answers anybody meanwhile is not stuck, only busy."""
    stalled_client_s: Annotated[int, Field(ge=1, le=86_400)] = 300
    """A client that takes nothing of its answer for so long is cut off, and its turn with it."""
    drain_s: Seconds = 30.0
    """From SIGTERM until streams that still run are cut."""


class Limits(Part):
    """Bounds on what one router holds in memory, and on what it repeats."""

    max_body_bytes: int = Field(default=32 * 2**20, ge=1024, le=2**30)
    """Largest request body accepted, in bytes."""
    max_request_bytes: int = Field(default=256 * 2**20, ge=1024, le=2**40)
    """Bodies of all requests in work, in bytes together; beyond, a request gets 503 with
    Retry-After. What is made of a body takes up to four times its size until the turn ends."""
    max_turns: int = Field(default=4_096, ge=1, le=1_000_000)
    """Turns in work; beyond, a request gets 503 with Retry-After before its body is read."""
    max_conversations: int = Field(default=100_000, ge=1, le=10_000_000)
    """Handles kept; the least recently stored goes first."""
    max_handle_bytes: int = Field(default=512 * 2**20, ge=4096, le=2**40)
    """Memory for conversations, in bytes: 1,400 each, and the JSON of the handle, which is about
    43 KB for 100,000 tokens at block size 16."""
    max_answer_bytes: int = Field(default=16 * 2**20, ge=1024, le=2**30)
    """Largest streamed answer, in bytes of its events, whose handle is kept; also the bound of a
    single event."""
    max_abandoned: int = Field(default=64, ge=0, le=100_000)
    """Turns whose client left that may run on in the background until it is safe to end them."""
    retries_per_s: float = Field(default=10.0, ge=0, le=10_000)
    """Legs that may be sent a second time in each second. Beyond, a failed leg is handled as if
    there were no other engine. 0 for none."""

    @model_validator(mode="after")
    def _one_body_fits(self) -> Self:
        if self.max_request_bytes < self.max_body_bytes:
            raise ValueError(
                f"max_request_bytes is {self.max_request_bytes}, but one body may have "
                f"max_body_bytes, which is {self.max_body_bytes}: it must be at least that"
            )
        return self


class Tenants(Part):
    """Who may use the pair, apart from all others. Without any of it everybody may."""

    directory: str = ""
    """Directory with the digests of API keys, such as a mounted Secret: a file for each tenant,
    a hexadecimal SHA-256 digest on each line. Empty: no keys are asked for."""
    header: str = ""
    """Request header in which a gateway names the tenant. Empty: none does."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses of the gateway as CIDR blocks, such as `10.20.0.0/16`; from others its header does
    not count. An address within a block stands for the block."""
    reload_s: Seconds = 5.0
    """Seconds between two looks at the directory."""

    @field_validator("header")
    @classmethod
    def _is_header_name(cls, header: str) -> str:
        return checked_header(header) if header else header

    @field_validator("trusted_proxies")
    @classmethod
    def _are_blocks(cls, blocks: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(_network, blocks))

    @model_validator(mode="after")
    def _header_needs_proxies(self) -> Self:
        if self.header and not self.trusted_proxies:
            raise ValueError(
                f"header is {self.header}, but trusted_proxies is empty: "
                "name the addresses of the gateway that sets it"
            )
        return self


def _network(block: str) -> str:
    try:
        network = ipaddress.ip_network(block, strict=False)
    except ValueError:
        raise ValueError(f"{block!a} is not a CIDR block such as 10.0.0.0/8") from None
    if not network.prefixlen:
        raise ValueError(f"{block} is every address: anybody could be any tenant")
    return str(network)


class RouterConfig(Part):
    """Everything a router process is told at its start."""

    pair: str = Field(default="static", min_length=1, max_length=253)
    """Name shown in metrics and logs."""
    revision: str = ""
    """Engine revision this router serves; empty pairs engines of any one revision."""
    host: str = ""
    """Address to bind; empty binds all interfaces."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 8000
    """Port of the API; 0 takes a free one."""
    metrics_port: Annotated[int, Field(ge=0, le=65_535)] = 9090
    """Port of /metrics; 0 switches it off."""
    endpoints: Annotated[StaticEndpoints | PodEndpoints, Field(discriminator="kind")]
    """Where the engines are: at fixed URLs, or the pods of a pair."""
    kv: KVTransfer = KVTransfer()
    """What the router has to know of the engines' KV transfer."""
    max_imbalance: int = Field(default=16, ge=0, le=100_000)
    """A conversation goes to the decode engine that holds it while that one has at most so many
    legs of this router more than the least busy other one. Then it is decoded there, and P reads
    from the holder all the same."""
    fallback: Literal["SingleEngine", "Refuse"] = "SingleEngine"
    """What happens to a turn while no prefill engine is ready: D answers alone, or 503."""
    conversation_headers: tuple[str, ...] = ("x-conversation-id", "x-session-id")
    """Request headers that may carry the conversation id, first match wins; the body's
    `conversation_id` comes before them."""
    workers: int = Field(default=1, ge=1, le=64)
    """Processes that serve the port, for more turns than one core takes. Each is a router of its
    own: limits are each one's, and only leases are shared, so handles cannot be kept."""
    tokenize: bool = False
    """Offer `POST /tokenize` and `POST /v1/messages/count_tokens`, which one engine answers. They
    tell a caller how the engines' chat template and tokenizer see a prompt, and cost an engine time
    that no turn accounts for."""
    tenants: Tenants = Tenants()
    """Who may use the pair."""
    way: WayConfig | None = None
    """How it is chosen whether P or D computes a turn's new tokens, or P all of it; needs
    `kv.leases`. None: P reads whatever is held and computes the rest."""
    timeouts: Timeouts = Timeouts()
    """Time limits of one turn."""
    limits: Limits = Limits()
    """Bounds on what one router holds and repeats; each of several `workers` has its own."""
    guard: GuardConfig = GuardConfig()
    """Whether a sample of turns is computed again and compared."""
    debug_port: Annotated[int, Field(ge=0, le=65_535)] | None = None
    """Port of `/debug/conversations`, 0 takes a free one; None: it is not there. It is bound to
    127.0.0.1, or to `host` where that is a loopback address: the page asks for no key."""
    tracing: Tracing | None = None
    """Where traces of turns are sent; None for no traces."""

    @model_validator(mode="after")
    def _workers_share_what_is_held(self) -> Self:
        if self.workers > 1 and self.kv.bidirectional and self.kv.leases is None:
            raise ValueError(
                f"workers is {self.workers}, but a handle is known to one of them only: "
                "set kv.leases, or kv.bidirectional to false"
            )
        if self.workers > 1 and not self.port:
            raise ValueError(f"workers is {self.workers}: port must be a number above 0")
        return self

    @model_validator(mode="after")
    def _a_choice_needs_leases(self) -> Self:
        if self.way is not None and not (self.kv.leases and self.kv.bidirectional):
            raise ValueError(
                "way is set: it needs kv.leases, and kv.bidirectional true, since only a turn "
                "with a lease has a choice"
            )
        return self

    @field_validator("conversation_headers")
    @classmethod
    def _are_header_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(checked_header, names))

    @model_validator(mode="after")
    def _a_header_means_one_thing(self) -> Self:
        taken = [name.lower() for name in self.conversation_headers]
        if self.tenants.header.lower() in taken:
            raise ValueError(
                f"tenants.header is {self.tenants.header}, which is one of conversation_headers"
            )
        way = self.way.header if self.way else ""
        if way and way.lower() in (*taken, self.tenants.header.lower()):
            raise ValueError(f"way.header is {way}, which names the conversation or the tenant")
        return self
