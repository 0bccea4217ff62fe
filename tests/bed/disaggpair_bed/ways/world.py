"""Virtual time: conversations arrive, a policy chooses, P and D work, and what happened is kept."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import Protocol

from disaggpair_bed.ways.costs import Cost, Machines, costs_of
from disaggpair_bed.ways.decode import Decode, Join, Step
from disaggpair_bed.ways.traffic import Conversation, PlannedTurn
from disaggpair_router.way.choice import Way

STEP_TOKENS = 512


@dataclass
class Asked:
    """A turn that waits for its way."""

    planned: PlannedTurn
    at: float
    held: int | None
    last: Way | None
    costs: dict[Way, Cost]


@dataclass
class Played:
    """A turn that is over."""

    asked: Asked
    way: Way
    ttft_s: float
    possible_s: dict[Way, float]
    """What each way would have taken in the state in which the turn came, without later turns.
    Empty if the world is not judged."""
    gap_s: float
    """The longest gap that DIRECT would have caused then."""


class Policy(Protocol):
    """Who chooses. The calls after `way` tell what a router sees."""

    def way(self, asked: Asked, world: "World") -> Way: ...
    def sent(self, asked: Asked, way: Way) -> None: ...
    def prefilled(self, asked: Asked, way: Way, at: float) -> None: ...
    def first_token(self, asked: Asked, way: Way, at: float, waited_s: float) -> None: ...
    def stepped(self, step: Step) -> None: ...


@dataclass
class _Running:
    asked: Asked
    way: Way
    possible_s: dict[Way, float]
    gap_s: float
    prefilled_at: float = 0.0


@dataclass
class World:
    """One P, one D, the turns in flight."""

    conversations: Sequence[Conversation]
    policy: Policy
    machines: Machines = field(default_factory=Machines)
    judged: bool = True
    """False: nothing is kept of what other ways would have taken, which costs most of a run."""
    decode: Decode = field(default_factory=lambda: Decode(STEP_TOKENS))
    now: float = 0.0
    p_free_at: float = 0.0
    played: list[Played] = field(default_factory=list)
    gaps: list[tuple[float, int]] = field(default_factory=list)
    """Length of a step and how many streams waited for it."""

    def __post_init__(self) -> None:
        self._events: list[tuple[float, int, int]] = []
        self._running: dict[int, _Running] = {}
        self._held: dict[int, int] = {}
        self._last: dict[int, Way] = {}
        self._position: dict[int, int] = {}
        self._turns = {turn.number: turn for c in self.conversations for turn in c.turns}
        for conversation in self.conversations:
            self._plan(conversation.start, conversation.turns[0])

    def run(self) -> "World":
        """Until every conversation is over."""
        while self._events or self.decode.next_end < inf:
            event_at = self._events[0][0] if self._events else inf
            if self.decode.next_end <= event_at:
                self._stepped(self.decode.step())
                continue
            self.now, kind, number = heappop(self._events)
            if kind:
                self._prefilled(self._running[number])
            else:
                self._arrived(self._turns[number])
        return self

    def possible_s(self, asked: Asked) -> dict[Way, float]:
        """Seconds to the first token by each way from now on, if nothing else came."""
        return {way: self._ahead(asked, way, cost) for way, cost in asked.costs.items()}

    def worst_gap_s(self, asked: Asked) -> float:
        """The gap that D's streams would see if D computed the turn's tokens."""
        streams = len(self.decode.streams)
        if not streams or "DIRECT" not in asked.costs:
            return 0.0
        tokens = min(STEP_TOKENS, self.decode.prefill_tokens + asked.planned.new)
        work_s = tokens * asked.costs["DIRECT"].d_work_s / asked.planned.new
        return self.decode.step_s(tokens, work_s, streams)

    def _ahead(self, asked: Asked, way: Way, cost: Cost) -> float:
        decode, number = self.decode.copy(), asked.planned.number
        for running in self._running.values():
            if running.prefilled_at > self.now:
                decode.add(self._join(running.asked, running.way, running.prefilled_at))
        decode.add(self._join(asked, way, self._p_end(cost)[1] if way != "DIRECT" else self.now))
        while True:
            step = decode.step()
            if number in step.first:
                return step.end - self.now

    def _p_end(self, cost: Cost) -> tuple[float, float]:
        """When P is free again, and when the leg's answer is there."""
        free_at = max(self.now, self.p_free_at) + cost.p_work_s
        return free_at, free_at + cost.p_latency_s

    def _join(self, asked: Asked, way: Way, at: float) -> Join:
        cost, planned = asked.costs[way], asked.planned
        if way == "DIRECT":
            # The last step's own length is part of the table's time where D is idle.
            return Join(
                at + cost.d_latency_s,
                planned.number,
                planned.answer,
                planned.new,
                cost.d_work_s / planned.new,
            )
        step_s = self.decode.step_s(0, 0.0, 1)
        return Join(at + max(0.0, cost.d_latency_s - step_s), planned.number, planned.answer)

    def _plan(self, at: float, turn: PlannedTurn) -> None:
        heappush(self._events, (at, 0, turn.number))

    def _arrived(self, planned: PlannedTurn) -> None:
        held = self._held.get(planned.conversation)
        costs = costs_of(self.machines, planned.luck, held, planned.new)
        asked = Asked(planned, self.now, held, self._last.get(planned.conversation), costs)
        possible_s = self.possible_s(asked) if self.judged else {}
        gap_s = self.worst_gap_s(asked)
        way = self.policy.way(asked, self)
        running = _Running(asked, way, possible_s, gap_s)
        self._running[planned.number] = running
        self._last[planned.conversation] = way
        self.policy.sent(asked, way)
        if way == "DIRECT":
            self.decode.add(self._join(asked, way, self.now))
            return
        self.p_free_at, running.prefilled_at = self._p_end(costs[way])
        heappush(self._events, (running.prefilled_at, 1, planned.number))

    def _prefilled(self, running: _Running) -> None:
        self.policy.prefilled(running.asked, running.way, self.now)
        self.decode.add(self._join(running.asked, running.way, self.now))

    def _stepped(self, step: Step) -> None:
        self.now = max(self.now, step.end)
        if step.streams:
            self.gaps.append((step.end - step.start, step.streams))
        self.policy.stepped(step)
        for number in step.first:
            running = self._running[number]
            since = running.prefilled_at or running.asked.at
            self.policy.first_token(running.asked, running.way, step.end, step.end - since)
            self.played.append(
                Played(
                    running.asked,
                    running.way,
                    step.end - running.asked.at,
                    running.possible_s,
                    running.gap_s,
                )
            )
        for number in step.done:
            self._done(self._running.pop(number).asked, step.end)

    def _done(self, asked: Asked, at: float) -> None:
        planned = asked.planned
        self._held[planned.conversation] = (asked.held or 0) + planned.new + planned.answer
        turns = self.conversations[planned.conversation].turns
        position = planned.number - turns[0].number + 1
        if position < len(turns):
            self._plan(at + turns[position].think_s, turns[position])
