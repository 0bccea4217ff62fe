"""D, step by step: each step decodes one token of every stream and prefills a limited number."""

from collections import deque
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from math import inf

from disaggpair_bed.ways.costs import EACH_STREAM_S, IDLE_STEP_S, MIXED, STREAM_STEP_S


@dataclass(order=True)
class Join:
    """A turn on its way to D: with tokens to prefill (DIRECT) or none (FULL and PULL)."""

    at: float
    turn: int
    answer: int = field(compare=False)
    """Tokens of the answer."""
    tokens: int = field(default=0, compare=False)
    """Tokens still to prefill."""
    token_s: float = field(default=0.0, compare=False)
    """Work of one of them."""


@dataclass
class Step:
    """One step that is over."""

    start: float
    end: float
    streams: int
    """Streams that got a token by it and had one before: so many gaps of its length."""
    tokens: int
    first: list[int]
    """Turns whose first token it brought."""
    done: list[int]
    """Turns whose last token it brought."""


class Decode:
    """The engine. `step` goes on by one step; nothing happens between two calls."""

    def __init__(self, step_tokens: int) -> None:
        self.step_tokens = step_tokens
        self.now = 0.0
        self.joins: list[Join] = []
        self.queue: deque[Join] = deque()
        self.streams: dict[int, int] = {}

    def copy(self) -> "Decode":
        """Another one in the same state."""
        other = Decode(self.step_tokens)
        other.now = self.now
        other.joins = [replace(join) for join in self.joins]
        other.queue = deque(replace(join) for join in self.queue)
        other.streams = dict(self.streams)
        return other

    @property
    def next_end(self) -> float:
        """When the next step ends; no earlier join changes that."""
        start = self._next_start()
        return inf if start == inf else start + self._planned(start)[0]

    @property
    def prefill_tokens(self) -> int:
        """Tokens that wait for prefill, those on their way included."""
        return sum(join.tokens for join in (*self.queue, *self.joins))

    def step_s(self, tokens: int, work_s: float, streams: int) -> float:
        """How long a step lasts."""
        if not streams:
            return work_s + IDLE_STEP_S if tokens else 0.0
        return STREAM_STEP_S + EACH_STREAM_S * max(0, streams - 4) + MIXED * work_s

    def add(self, join: Join) -> None:
        """A turn comes; its first step begins no earlier than `at`."""
        heappush(self.joins, join)

    def step(self) -> Step:
        """Go on by one step."""
        start = self._next_start()
        length, tokens = self._planned(start)
        end = start + length
        first: list[int] = []
        done: list[int] = []
        had = len(self.streams)
        arrived: list[Join] = []
        while self.joins and self.joins[0].at <= start:
            join = heappop(self.joins)
            (self.queue if join.tokens else arrived).append(join)
        left = tokens
        while left and self.queue:
            head = self.queue[0]
            part = min(left, head.tokens)
            head.tokens -= part
            left -= part
            if not head.tokens:
                arrived.append(self.queue.popleft())
        for turn in list(self.streams):
            self._token(turn, done)
        for join in arrived:
            first.append(join.turn)
            self.streams[join.turn] = join.answer
            self._token(join.turn, done)
        self.now = end
        return Step(start, end, had, tokens, first, done)

    def _token(self, turn: int, done: list[int]) -> None:
        self.streams[turn] -= 1
        if not self.streams[turn]:
            del self.streams[turn]
            done.append(turn)

    def _next_start(self) -> float:
        if self.streams or self.queue:
            return self.now
        return max(self.now, self.joins[0].at) if self.joins else inf

    def _planned(self, start: float) -> tuple[float, int]:
        """Length and prefilled tokens of the step that starts now."""
        here = [join for join in self.joins if join.at <= start]
        streams = len(self.streams) + sum(not join.tokens for join in here)
        waiting = [*self.queue, *sorted(join for join in here if join.tokens)]
        left, work_s = self.step_tokens, 0.0
        for join in waiting:
            part = min(left, join.tokens)
            work_s += part * join.token_s
            left -= part
        tokens = self.step_tokens - left
        return self.step_s(tokens, work_s, streams), tokens
