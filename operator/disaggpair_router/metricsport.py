"""What the ports for metrics and for debugging serve."""

from collections.abc import Awaitable, Callable, Mapping
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


Page = Callable[[str], Awaitable[Answer]]
"""Answers a GET with this query."""


class InnerPort:
    """Pages by path, for those who run the router (`inbound.message.Application`)."""

    max_body_bytes = 1024

    def __init__(self, pages: Mapping[str, Page]) -> None:
        self._pages = pages

    def begin(self, head: Head) -> Work | Answer:
        """See `inbound.message.Application`."""
        page = self._pages.get(head.path) if head.method in ("GET", "HEAD") else None
        return partial(_answer, page, head.query) if page else Answer(404, b"not found\n", TEXT)

    def fault(self, fault: Fault, head: Head | None) -> Answer:
        """See `inbound.message.Application`."""
        return Answer(_FAULTS[fault], b"", TEXT)


async def _answer(page: Page, query: str, raw: bytes, responder: Responder) -> Answer:
    return await page(query)


def metrics_pages(exposition: Exposition) -> dict[str, Page]:
    """What the metrics port serves."""

    async def metrics(query: str) -> Answer:
        return Answer(200, await exposition(), Metrics.content_type)

    return {"/metrics": metrics}


def debug_pages(debug: DebugPage) -> dict[str, Page]:
    """What the debug port serves."""

    async def conversations(query: str) -> Answer:
        given = parse_qs(query).get("conversation", [""])
        return Answer(200, orjson.dumps(debug.page(given[0])))

    return {"/debug/conversations": conversations}
