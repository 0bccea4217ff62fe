"""How long a router waits in a turn, and how much it takes and keeps. Pure."""

from typing import Annotated

from pydantic import Field

from disaggpair_operator.api.rules import Part

Seconds = Annotated[int, Field(ge=1, le=86_400)]


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

    max_body_bytes: Annotated[int, Field(ge=1024, le=2**30)] = 32 * 2**20
    """Largest request; a larger one is refused with 413."""
    max_request_bytes: Annotated[int, Field(ge=1024, le=2**40)] = 512 * 2**20
    """All requests in work together; beyond, one is refused with 503. What is made of a request
    takes up to four times its size, so `resources.memory` has to leave room for that."""
    max_turns: Annotated[int, Field(ge=1, le=1_000_000)] = 4096
    """Turns in work; beyond, one is refused with 503."""
    max_answer_bytes: Annotated[int, Field(ge=1024, le=2**30)] = 16 * 2**20
    """Largest streamed answer whose handle is kept, and largest single event of a stream."""
    retries_per_second: Annotated[int, Field(ge=0, le=10_000)] = 10
    """Legs that may be sent a second time in each second; 0 for none."""
    max_abandoned: Annotated[int, Field(ge=0, le=100_000)] = 64
    """Turns whose client left that may run on until it is safe to end them."""
    max_conversations: Annotated[int, Field(ge=1, le=10_000_000)] = 100_000
    """Handles that are kept; the oldest goes first. For connector Nixl: with DisaggPair D keeps
    them."""
    max_handle_bytes: Annotated[int, Field(ge=4096, le=2**40)] = 512 * 2**20
    """Memory for handles. For connector Nixl."""
    max_held_tokens: Annotated[int, Field(ge=1, le=2**40)] | None = None
    """Tokens that handles may keep in one D; beyond, the oldest is given back. Half of D's cache is
    a good value. For connector Nixl. Default: no bound but decodeTTLSeconds."""
