"""The debug page of the metrics port: who holds which conversation, and what keeps turns from it.

It shows digests, names of engines, words and counts; no ids, keys, prompts or addresses of peers.
"""

from collections.abc import Callable
from dataclasses import asdict
from itertools import islice
from typing import Any, Final

from disaggpair_router.endpoints import Endpoints
from disaggpair_router.held import HeldKV
from disaggpair_router.seen.state import engine_state

MAX_ROWS: Final = 1_000
"""Conversations that one page shows."""

Page = dict[str, Any]


class DebugPage:
    """Shows the state of one router.

    Args:
        endpoints: the engines.
        held: what they hold.
        clock: seconds that only grow.
    """

    def __init__(self, *, endpoints: Endpoints, held: HeldKV, clock: Callable[[], float]) -> None:
        self._endpoints = endpoints
        self._held = held
        self._clock = clock

    def page(self, conversation: str = "") -> Page:
        """The state now: of one conversation by its digest, or of the first ones.

        To look for one takes a microsecond or so for each that is held, in the event loop.
        """
        rows = (row for row in self._held.rows() if conversation in ("", row.conversation))
        return {
            "engines": self._engines(),
            "pauses": [
                {"prefill": prefill, "decode": decode, "left_s": round(left_s, 3)}
                for prefill, decode, left_s in self._held.pauses()
            ],
            "held": self._held.count,
            "conversations": [
                {**asdict(row), "age_s": round(row.age_s, 3)} for row in islice(rows, MAX_ROWS)
            ],
        }

    def _engines(self) -> list[Page]:
        listeners = self._held.listeners()
        now = self._clock()
        return [
            {
                "engine": endpoint.name,
                "role": endpoint.role,
                "state": engine_state(self._endpoints, endpoint),
                "in_flight": self._endpoints.in_flight(endpoint.name),
                "silent_s": round(now - self._endpoints.last_answer(endpoint), 3)
                if endpoint.ready
                else None,
                "listeners": [
                    "followed" if answers else "silent"
                    for (name, _), answers in sorted(listeners.items())
                    if name == endpoint.name
                ],
            }
            for endpoint in self._endpoints
        ]
