"""What the metrics port serves."""

from functools import partial
from typing import Final
from urllib.parse import parse_qs

import orjson

from disaggpair_router.gathered import Exposition
from disaggpair_router.inbound.message import TEXT, Answer, Fault, Head, Responder, Work
from disaggpair_router.metrics import Metrics
from disaggpair_router.seen.debug import DebugPage

_FAULTS: Final[dict[Fault, int]] = {
    "malformed": 400,
    "head_too_large": 431,
    "body_too_large": 413,
    "late": 408,
    "overloaded": 503,
    "failed": 500,
}


class MetricsPort:
    """`/metrics`, and the debug page if there is one (`inbound.message.Application`)."""

    max_body_bytes = 1024

    def __init__(self, exposition: Exposition, debug: DebugPage | None = None) -> None:
        self._exposition = exposition
        self._debug = debug

    def begin(self, head: Head) -> Work | Answer:
        """See `inbound.message.Application`."""
        if head.method in ("GET", "HEAD"):
            if head.path == "/metrics":
                return self._metrics
            if head.path == "/debug/conversations" and self._debug is not None:
                return partial(self._conversations, self._debug, head.query)
        return Answer(404, b"not found\n", TEXT)

    def fault(self, fault: Fault, head: Head | None) -> Answer:
        """See `inbound.message.Application`."""
        return Answer(_FAULTS[fault], b"", TEXT)

    async def _metrics(self, raw: bytes, responder: Responder) -> Answer:
        return Answer(200, await self._exposition(), Metrics.content_type)

    async def _conversations(
        self, debug: DebugPage, query: str, raw: bytes, responder: Responder
    ) -> Answer:
        given = parse_qs(query).get("conversation", [""])
        return Answer(200, orjson.dumps(debug.page(given[0])))
