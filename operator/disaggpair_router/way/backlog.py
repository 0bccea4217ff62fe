"""The prefill work that an engine has before it, as far as the router knows. Pure.

The engine is taken to be free again at `free_at`, which a leg of w seconds of work moves to

    free_at = max(now, free_at) + w

so work that waits adds up and time works it off. When a leg ends, the others' work is all there can
be; and if it ended late, so will they. In batches or one by one, a stretch of time in which there
always is work lasts as long as the sum of it: a finished stretch tells what its legs took together,
which their own times, mixed by queueing and batching, do not.
"""

from dataclasses import dataclass

from disaggpair_router.way.fit import Parts, bounded

MAX_LEGS = 16
"""Legs of a stretch that is learned from. The errors of one that is longer have added up."""
MAX_COUNT = 1_000_000
LATENCY = frozenset({"fixed", "floor", "prompt"})
"""Parts of a leg's time that do not occupy the engine. Of a stretch they are waited for once: those
of later legs pass while work is done."""


@dataclass(frozen=True, slots=True)
class Work:
    """The prefill of one leg, as estimated when it is sent."""

    parts: Parts
    """By the prior (`rates`)."""
    seconds: float
    """Estimate for which the engine is occupied."""
    latency_s: float
    """Estimate of what the leg takes besides."""
    tokens: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """Legs that followed each other without a pause: what they were and how long it took."""

    parts: Parts
    seconds: float


@dataclass(frozen=True, slots=True)
class Load:
    """What stands before the next turn at one engine."""

    ahead_s: float = 0.0
    """Seconds until prefill work that was sent before is done."""
    ahead_tokens: int = 0
    """Tokens of that work, as far as this router sent it."""
    streams: int = 0
    """Answers that the engine is decoding."""


IDLE = Load()


class Backlog:
    """The legs in flight that an engine has to prefill."""

    def __init__(self) -> None:
        self._legs: dict[str, tuple[Work, float]] = {}
        self._free_at = float("-inf")
        self._since = 0.0
        self._parts: dict[str, float] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._legs)

    def start(self, leg: str, work: Work, now: float) -> None:
        """A leg is sent. `now` is a monotonic clock's."""
        if not self._legs:
            self._since, self._parts, self._count = now, {}, 0
        for name, part in work.parts.items():
            if name not in LATENCY or not self._count:
                self._parts[name] = self._parts.get(name, 0.0) + part
        self._count += 1
        self._free_at = max(now, self._free_at) + work.seconds
        self._legs[leg] = work, self._free_at + work.latency_s

    def end(self, leg: str, now: float) -> Stretch | None:
        """A leg's prefill is done. The stretch, when it was the last and can be learned from."""
        ended = self._legs.pop(leg, None)
        if ended is None:
            return None
        late_s = max(0.0, now - ended[1])
        self._free_at = min(self._free_at + late_s, now + self._left_s())
        if self._legs or self._count > MAX_LEGS:
            return None
        return Stretch(self._parts, now - self._since)

    def drop(self, leg: str, now: float) -> None:
        """A leg failed or was cut: what it took tells nothing, nor does its stretch."""
        if self._legs.pop(leg, None) is not None:
            self._count = MAX_LEGS + 1
            self._free_at = min(self._free_at, now + self._left_s())

    def load(self, now: float, *, streams: float = 0, others: float = 0, each_s: float = 0) -> Load:
        """What a leg that is sent now finds.

        `streams` and `others` may be gauges of the engine (`vllm:num_requests_running`,
        `vllm:num_requests_waiting`) less the router's own: `others` are requests that wait there
        and are not in this backlog, `each_s` what one is taken to need. What is not a number
        counts as 0.
        """
        unseen = bounded(others, 0.0, MAX_COUNT)
        return Load(
            ahead_s=max(0.0, self._free_at - now) + unseen * bounded(each_s, 0.0, 60.0),
            ahead_tokens=sum(work.tokens for work, _ in self._legs.values()),
            streams=int(bounded(streams, 0.0, MAX_COUNT)),
        )

    def _left_s(self) -> float:
        return sum(work.seconds for work, _ in self._legs.values())


def latency_of(parts: Parts) -> Parts:
    """The parts that do not occupy an engine."""
    return {name: part for name, part in parts.items() if name in LATENCY}


def work_of(parts: Parts) -> Parts:
    """The parts that do."""
    return {name: part for name, part in parts.items() if name not in LATENCY}
