"""What a router watches of its turns, and where it tells it: the guard and traces. Pure."""

import re
from typing import Annotated, Final

from pydantic import Field

from disaggpair_operator.api.rules import Part, Rule
from disaggpair_operator.api.text import shown
from disaggpair_operator.api.v1alpha1.fields import KeyRef

MILLION: Final = 1_000_000

_HOST: Final = "[A-Za-z0-9]([-.A-Za-z0-9]*[A-Za-z0-9])?"
_PORT: Final = (
    "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
)


_URL: Final = f"https?://{_HOST}(:{_PORT})?(/[-._~A-Za-z0-9/]*)?"
_IS_A_URL: Final = (
    "must be a URL such as http://collector.telemetry:4318, without user, query or fragment"
)


class Guard(Part):
    """Has a sample of turns computed again, to find answers that came of wrong KV."""

    sampling_rate_per_million: Annotated[int, Field(ge=1, le=MILLION)] = 1000
    """Turns that are checked, of each million that used an earlier turn's KV. A check computes the
    turn's whole prompt once more, at one engine."""
    tolerance_percent: Annotated[int, Field(ge=1, le=99)] = 25
    """How far two distributions of a first token may be apart: 0 when they are equal, 100 when they
    have no token in common. Quantised KV needs more."""


class Tracing(Part):
    """Where the router sends a trace of each turn that is recorded."""

    endpoint: Annotated[str, Field(min_length=8, max_length=1024)]
    """URL of a collector's OTLP/HTTP receiver, such as http://collector.telemetry:4318; /v1/traces
    is added where it has no path."""
    sampling_rate_per_million: Annotated[int, Field(ge=0, le=MILLION)] = 10_000
    """Turns that are recorded, of each million. A client that sends a traceparent decides for its
    own turns."""
    headers_secret_ref: KeyRef | None = None
    """Secret key with headers that the collector wants, as NAME=VALUE separated by commas, such as
    authorization=Bearer%20KEY. Read when a router starts."""

    rules = (
        Rule(
            cel=f"self.endpoint.matches(r'^{_URL}$')",
            message=f"spec.router.tracing.endpoint {_IS_A_URL}",
            check=lambda self: re.fullmatch(_URL, self.endpoint) is not None,
            explain=lambda self: (
                f"spec.router.tracing.endpoint is {shown(self.endpoint)}, but {_IS_A_URL}"
            ),
            field_path=".endpoint",
        ),
    )
