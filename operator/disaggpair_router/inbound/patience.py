"""How long clients are waited for."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds, except for the bound of a head."""

    idle: int = 75
    """For the next request. Longer than proxies keep a connection (60 s in many), since a request
    that meets the close is lost."""
    head: int = 30
    """From a request's first byte to the end of its head."""
    body: int = 60
    """Between two pieces of a body."""
    stalled: int = 300
    """For a client that takes nothing of its answer."""
    linger: int = 5
    """For the rest of a body that nobody wants, so that the client reads its answer first."""
    head_bytes: int = 64 * 1024
