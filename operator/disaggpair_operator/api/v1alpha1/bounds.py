"""How long a router waits in a turn, and how much it takes and keeps. Pure."""

from typing import Annotated, Final

from pydantic import Field

from disaggpair_operator.api.rules import Part, Rule, given

Seconds = Annotated[int, Field(ge=1, le=86_400)]

MAX_BODY_BYTES: Final = 32 * 2**20
MAX_REQUEST_BYTES: Final = 256 * 2**20
MAX_CONVERSATIONS: Final = 100_000
MAX_HANDLE_BYTES: Final = 512 * 2**20

COPIES: Final = 4
"""How many times its size a request may take in memory, at worst, until its turn ends."""
WORKER_BYTES: Final = 256 * 2**20
"""What a process needs beside requests: 60 MB of its own, as much for the one that reads requests
above 512 KB, 125 MB for 100,000 leases, and room for 70 clients that read slowly."""

_BODY: Final = given("self.maxBodyBytes", MAX_BODY_BYTES)
_REQUESTS: Final = given("self.maxRequestBytes", MAX_REQUEST_BYTES)
_ONE_FITS: Final = "all requests in work together are at least one"


class RouterTimeouts(Part):
    """How long a router waits in a turn."""

    prefill_seconds: Seconds = 120
    """For the whole P leg."""
    decode_first_byte_seconds: Seconds = 600
    """For the first byte of the D leg; for the whole answer where it is not streamed."""
    decode_idle_seconds: Seconds = 120
    """Between two parts of D's answer."""
    keepalive_seconds: Annotated[int, Field(ge=0, le=3600)] = 0
    """Silence after which a client that streams gets a comment while it waits for its first token,
    for load balancers that cut idle connections; 0 for none. After the first one an error is an
    event of the stream, and no longer a status."""
    canary_seconds: Annotated[int, Field(ge=0, le=3600)] = 10
    """Silence after which an engine is asked for one token, to find one that is stuck; 0 for
    never."""
    canary_limit_seconds: Seconds = 15
    """For that token. An engine that answers anybody meanwhile is not stuck."""
    stalled_client_seconds: Seconds = 300
    """For a client that takes nothing of its answer; then it is cut off, and its turn with it."""


class RouterLimits(Part):
    """How much a router takes and keeps. Each of `workers` has them for itself."""

    max_body_bytes: Annotated[int, Field(ge=1024, le=2**30)] = MAX_BODY_BYTES
    """Largest request; a larger one is refused with 413."""
    max_request_bytes: Annotated[int, Field(ge=1024, le=2**40)] = MAX_REQUEST_BYTES
    """All requests in work together, at least maxBodyBytes; beyond, one is refused with 503. What
    is made of a request takes up to four times its size, so each of `workers` needs 256Mi and four
    times this."""
    max_turns: Annotated[int, Field(ge=1, le=1_000_000)] = 4096
    """Turns in work; beyond, one is refused with 503."""
    max_answer_bytes: Annotated[int, Field(ge=1024, le=2**30)] = 16 * 2**20
    """Largest streamed answer whose handle is kept, and largest single event of a stream."""
    retries_per_second: Annotated[int, Field(ge=0, le=10_000)] = 10
    """Legs that may be sent a second time in each second; 0 for none."""
    max_abandoned: Annotated[int, Field(ge=0, le=100_000)] = 64
    """Turns whose client left that may run on until it is safe to end them."""
    max_conversations: Annotated[int, Field(ge=1, le=10_000_000)] = MAX_CONVERSATIONS
    """Handles that are kept; the oldest goes first. For connector Nixl alone: with DisaggPair D
    keeps them."""
    max_handle_bytes: Annotated[int, Field(ge=4096, le=2**40)] = MAX_HANDLE_BYTES
    """Memory for handles. For connector Nixl alone."""
    max_held_tokens: Annotated[int, Field(ge=1, le=2**40)] | None = None
    """Tokens that handles may keep in one D; beyond, the oldest is given back. Half of D's cache is
    a good value. For connector Nixl alone. Default: no bound but decodeTTLSeconds."""

    rules = (
        Rule(
            cel=f"{_REQUESTS} >= {_BODY}",
            message=(
                "spec.router.limits.maxRequestBytes must be at least "
                f"spec.router.limits.maxBodyBytes: {_ONE_FITS}"
            ),
            message_cel=(
                "'spec.router.limits.maxRequestBytes is %d, but must be at least %d, which is "
                f"spec.router.limits.maxBodyBytes: {_ONE_FITS}'.format([{_REQUESTS}, {_BODY}])"
            ),
            check=lambda self: self.max_request_bytes >= self.max_body_bytes,
            explain=lambda self: (
                f"spec.router.limits.maxRequestBytes is {self.max_request_bytes}, but must be at "
                f"least {self.max_body_bytes}, which is spec.router.limits.maxBodyBytes: "
                f"{_ONE_FITS}"
            ),
            field_path=".maxRequestBytes",
        ),
    )

    @property
    def bounds_handles(self) -> bool:
        """Whether a bound on the handles in a router's memory is not its default."""
        return (
            self.max_conversations != MAX_CONVERSATIONS
            or self.max_handle_bytes != MAX_HANDLE_BYTES
            or self.max_held_tokens is not None
        )

    @property
    def process_bytes(self) -> int:
        """Memory that one process of a router needs at worst."""
        return WORKER_BYTES + COPIES * self.max_request_bytes
