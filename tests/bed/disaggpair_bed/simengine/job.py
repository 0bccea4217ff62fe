"""Values that pass between the core and what drives it."""

from array import array
from dataclasses import dataclass, field
from typing import Any

from disaggpair_bed.simengine import tokens
from disaggpair_bed.simengine.decisions import Ending
from disaggpair_bed.simengine.identity import NOBODY, Adapter, Identity


@dataclass(frozen=True)
class Sampling:
    """The part of a request that decides where its answer ends."""

    max_tokens: int
    min_tokens: int = 0
    ignore_eos: bool = False
    stop_token_ids: frozenset[int] = frozenset()


@dataclass
class Request:
    """One sequence in the engine core."""

    id: str
    prompt_tokens: int
    tokens: "array[int]"
    """The prompt, then what was sampled."""
    sampling: Sampling
    params: dict[str, Any] | None = None
    salt: str = ""
    lora_request: Adapter | None = None
    tenant: str = ""
    """Whose request it is, which tests know."""
    thinking: int | None = None
    """Tokens of thinking before the answer; None for what the model does."""
    reads_prefix_cache: bool = True
    """False: prompt logprobs are wanted, so everything is computed."""
    is_rejected: bool = False
    """It stands for a request that the API refused."""

    blocks: list[int] = field(default_factory=list)
    hashes: list[bytes] = field(default_factory=list)
    filed: int = 0
    """Full blocks that were offered to the prefix cache."""
    computed: int = 0
    """Positions whose KV is, or is promised to be, in `blocks`."""
    local_hit: int = 0
    external: int = 0
    """Prompt tokens that were promised by the connector at the first admission."""
    cached: int = 0
    """Prompt tokens that were not to be computed, at the first admission."""
    told_cached: Any = field(init=False, default=None)
    """`remote_prefill_cached_tokens`, which vLLM reads before the connector sees the parameters."""
    preempted: bool = False
    answer_length: int | None = None

    def __post_init__(self) -> None:
        self.told_cached = (self.params or {}).get("remote_prefill_cached_tokens")

    @property
    def request_id(self) -> str:
        """The id, by vLLM's name for the connector's own modules."""
        return self.id

    @property
    def num_prompt_tokens(self) -> int:
        """As `request_id`."""
        return self.prompt_tokens

    @property
    def cache_salt(self) -> str:
        """As `request_id`."""
        return self.salt

    @property
    def identity(self) -> Identity:
        """Whose KV this is, besides its tokens."""
        adapter = "@".join(self.lora_request) if self.lora_request else ""
        return Identity(adapter, self.salt, self.tenant)

    @property
    def sampled(self) -> int:
        """Tokens sampled so far."""
        return len(self.tokens) - self.prompt_tokens

    def ending_after(self, token: int, max_model_len: int) -> Ending | None:
        """How the request ends with the token that was sampled last; None if it goes on."""
        sampling = self.sampling
        if token == tokens.END_OF_TURN and not sampling.ignore_eos:
            return Ending.STOPPED
        if token in sampling.stop_token_ids and self.sampled >= sampling.min_tokens:
            return Ending.STOPPED
        if self.sampled >= sampling.max_tokens or len(self.tokens) >= max_model_len:
            return Ending.LENGTH
        return None

    @property
    def reported_cached(self) -> int:
        """Prompt tokens that a cache saved, on P when D was told of them: what usage reports."""
        remote = self.told_cached
        return remote if isinstance(remote, int) else self.cached


@dataclass(frozen=True)
class Peer:
    """Where the owner of some blocks listens."""

    engine_id: str
    host: str
    port: int


@dataclass(frozen=True)
class ReadJob:
    """Blocks to fetch from a peer for a parked request."""

    request_id: str
    peer: Peer
    remote_request_id: str
    local_blocks: tuple[int, ...]
    remote_block_ids: Any
    expiry: Any
    identity: Identity = NOBODY
    """Of the request that reads."""


@dataclass(frozen=True)
class NotifyJob:
    """Tell a peer that its blocks may be freed, without a read."""

    request_id: str
    peer: Peer
    remote_request_id: str


@dataclass(frozen=True)
class Heartbeat:
    """Renew a peer's leases."""

    peer: Peer
    request_ids: tuple[str, ...]


@dataclass(frozen=True)
class Output:
    """One sampled token of a request, or its end, or both."""

    request_id: str
    token: int | None
    logprob: float = 0.0
    ending: Ending | None = None
    params: dict[str, Any] | None = None
    cached_tokens: int = 0
    """Prompt tokens that were not computed here."""


@dataclass
class Step:
    """What one step of the core did and wants done."""

    outputs: list[Output] = field(default_factory=list)
    reads: list[ReadJob] = field(default_factory=list)
    notifies: list[NotifyJob] = field(default_factory=list)
    heartbeats: list[Heartbeat] = field(default_factory=list)
    prefill_tokens: int = 0
    decode_tokens: int = 0
    attended: int = 0
    """Sum of the positions of the prefill tokens."""

    @property
    def computed(self) -> bool:
        """Whether the step ran the model."""
        return self.prefill_tokens > 0 or self.decode_tokens > 0
