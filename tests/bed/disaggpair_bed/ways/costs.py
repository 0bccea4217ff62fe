"""What a turn costs: tables of measurements, interpolated, each split into work and latency.

Two H200 of one host, vLLM 0.25.1, the shape of Qwen3-32B, TP 1, eager, block 128, P's cache cold.
Work occupies an engine: new tokens times a slope that grows with the tokens before them, read off
the tables' differences. Latency is the rest of a table's time and occupies nothing.
"""

from bisect import bisect_right
from dataclasses import dataclass
from random import Random
from typing import Final

from disaggpair_router.way.choice import Way

Row = dict[int, float]
Table = dict[int, Row]

TTFT_S: Final[dict[Way, Table]] = {
    "FULL": {
        8_000: {64: 1.022, 1_024: 1.176, 4_096: 1.566},
        24_000: {64: 3.458, 256: 3.484, 1_024: 3.642, 2_048: 3.778, 4_096: 4.196},
    },
    "PULL": {
        8_000: {64: 0.278, 1_024: 0.329, 4_096: 0.704},
        24_000: {64: 0.354, 256: 0.323, 1_024: 0.454, 2_048: 0.600, 4_096: 1.004},
    },
    "DIRECT": {
        8_000: {64: 0.149, 1_024: 0.157, 4_096: 0.553},
        24_000: {64: 0.148, 256: 0.122, 1_024: 0.236, 2_048: 0.423, 4_096: 0.765},
    },
}
"""Seconds to the first token of a turn alone on its engines, by history and new tokens."""

COLD_S: Final[Row] = {3_964: 0.587, 7_892: 1.022, 15_748: 2.178, 23_604: 3.546}
"""The same for FULL, by prompt."""

SLOPE_S: Final[Row] = {8_000: (0.553 - 0.157) / 3_072, 24_000: (0.765 - 0.236) / 3_072}
"""Work of one new token by tokens before it: differences of DIRECT's rows, 129 and 172 µs."""

MIXED: Final = 0.71
"""Work in a step that also decodes: 46 ms more for 512 tokens, 90 ms more for 1,024, measured."""
STREAM_STEP_S: Final = 0.031
"""A step that decodes four streams."""
EACH_STREAM_S: Final = 0.0005
"""What a stream more costs. Not measured: half of its KV's reading at 4.8 TB/s, 8,000 tokens."""
IDLE_STEP_S: Final = 0.0095
"""A step more without streams: DIRECT by steps of 512 takes 19 ms more for 1,024 tokens, 32 for
2,048."""
HANDOVER_S: Final = 0.133
"""D's part of a turn on two legs: 572 ms less a P leg of 439."""
POSTING_S: Final = 58e-3 / 21_703
"""How long P's worker posts the read of one token of history."""


def interpolated(row: Row, x: float) -> float:
    """Linear between the points, and on beyond the ends with the slope there."""
    points = sorted(row)
    right = min(max(bisect_right(points, x), 1), len(points) - 1)
    x0, x1 = points[right - 1], points[right]
    return row[x0] + (row[x1] - row[x0]) * (x - x0) / (x1 - x0)


def slope_s(before: float) -> float:
    """Work of one new token after so many."""
    return interpolated(SLOPE_S, before)


def work_s(held: int, new: int) -> float:
    """Work of new tokens after held ones."""
    return new * slope_s(held)


def cold_work_s(prompt: int) -> float:
    """Work of a whole prompt: the slope at its middle."""
    return prompt * slope_s(prompt / 2)


def _latency_s(way: Way, held: int, new: int) -> float:
    def rest(history: int, tokens: int) -> float:
        work = cold_work_s(history + tokens) if way == "FULL" else work_s(history, tokens)
        return TTFT_S[way][history][tokens] - work

    by_history = {
        history: interpolated(
            {tokens: rest(history, tokens) for tokens in row}, min(max(new, 64), 4_096)
        )
        for history, row in TTFT_S[way].items()
    }
    return max(0.01, interpolated(by_history, min(max(held, 8_000), 24_000)))


@dataclass(frozen=True)
class Machines:
    """How the engines differ from the measured ones."""

    p_work: float = 1.0
    d_work: float = 1.0
    latency: float = 1.0
    read: float = 1.0
    """Of P's read of the history; 7 is about block 16."""
    scatter: float = 0.04
    """Sigma of the logarithm of work; latency has three times that."""
    stalls: float = 0.01
    """Share of turns whose latency is five times as long."""


@dataclass(frozen=True)
class Cost:
    """One way of one turn, its luck included."""

    p_work_s: float
    p_latency_s: float
    d_work_s: float
    d_latency_s: float


def costs_of(machines: Machines, luck: int, held: int | None, new: int) -> dict[Way, Cost]:
    """Each way that a turn can take. The same luck brings the same scatter."""
    draw = Random(luck)
    work = draw.lognormvariate(0, machines.scatter)
    found: dict[Way, Cost] = {}
    ways: tuple[Way, ...] = ("FULL", "PULL", "DIRECT")
    for way in ways:
        scatter = draw.lognormvariate(0, 3 * machines.scatter) * machines.latency
        scatter *= 5 if draw.random() < machines.stalls else 1
        if way == "FULL":
            prompt = (held or 0) + new
            p_work = cold_work_s(prompt) * machines.p_work * work
            if held:
                latency = _latency_s("FULL", held, new)
            else:
                rest = {tokens: time - cold_work_s(tokens) for tokens, time in COLD_S.items()}
                latency = max(0.05, interpolated(rest, min(max(new, 3_964), 23_604)))
            found[way] = _two_legs(p_work, latency, scatter)
        elif held and way == "PULL":
            posting = POSTING_S * held
            p_work = work_s(held, new) * machines.p_work * work + posting * machines.read
            found[way] = _two_legs(p_work, max(0.05, _latency_s(way, held, new) - posting), scatter)
        elif held:
            d_work = work_s(held, new) * machines.d_work * work
            found[way] = Cost(0, 0, d_work, _latency_s(way, held, new) * scatter)
    return found


def _two_legs(p_work_s: float, latency_s: float, luck: float) -> Cost:
    handover_s = min(HANDOVER_S, 0.8 * latency_s)
    return Cost(p_work_s, (latency_s - handover_s) * luck, 0, handover_s * luck)
