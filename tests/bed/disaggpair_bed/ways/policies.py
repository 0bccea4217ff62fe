"""Who chooses the way of a turn: always the same, the router's chooser, or hindsight."""

from collections import Counter
from dataclasses import dataclass, field

from disaggpair_bed.ways.decode import Step
from disaggpair_bed.ways.world import Asked, World
from disaggpair_router.way.backlog import Backlog
from disaggpair_router.way.choice import Decision, Turn, Way, choose
from disaggpair_router.way.config import WayConfig
from disaggpair_router.way.rates import Rates
from disaggpair_router.way.tokens import TokenRatios

MODEL = "m"


class _Deaf:
    """A policy that looks at nothing."""

    def sent(self, asked: Asked, way: Way) -> None: ...
    def prefilled(self, asked: Asked, way: Way, at: float) -> None: ...
    def first_token(self, asked: Asked, way: Way, at: float, waited_s: float) -> None: ...
    def stepped(self, step: Step) -> None: ...


@dataclass
class Always(_Deaf):
    """One way wherever it is possible, else FULL."""

    wanted: Way

    def way(self, asked: Asked, world: World) -> Way:
        return self.wanted if self.wanted in asked.costs else "FULL"


@dataclass
class Hindsight(_Deaf):
    """Knows the costs, the luck and the engines: the fastest way within the budget of gaps."""

    gap_budget_s: float

    def way(self, asked: Asked, world: World) -> Way:
        return fastest_within(asked, world, self.gap_budget_s)


def fastest_within(asked: Asked, world: World, gap_budget_s: float) -> Way:
    """The way that takes least in this state and keeps the budget."""
    possible_s = world.possible_s(asked)
    if "DIRECT" in possible_s and world.worst_gap_s(asked) > gap_budget_s:
        del possible_s["DIRECT"]
    return min(possible_s, key=possible_s.__getitem__)


@dataclass
class Chooser:
    """What the router does: it sees messages, times of legs, gaps, and its own turns in flight."""

    config: WayConfig = field(default_factory=WayConfig)
    learns: bool = True

    def __post_init__(self) -> None:
        self.rates = Rates(step_tokens=self.config.step_tokens)
        self.ratios = TokenRatios()
        self.p, self.d = Backlog(), Backlog()
        self.streams = 0
        self.decisions: list[Decision] = []
        self.reasons: Counter[str] = Counter()
        self._guessed: dict[int, int] = {}
        self._calm: tuple[float, int] | None = None
        self._alone: int | None = None
        self._longest = (0.0, 0)

    def way(self, asked: Asked, world: World) -> Way:
        if self._calm and self.learns:
            gap_s, streams = self._calm
            self.rates.observe_gap(0, 0, streams, gap_s)
        new = self.ratios.tokens(MODEL, asked.planned.characters)
        self._guessed[asked.planned.number] = new
        decision = choose(
            Turn(new, asked.held, last=asked.last),
            self.rates,
            self.config,
            prefill=self.p.load(asked.at),
            decode=self.d.load(asked.at, streams=self.streams),
        )
        self.reasons[decision.reason] += 1
        self.decisions.append(decision)
        return decision.way

    def sent(self, asked: Asked, way: Way) -> None:
        leg, held = str(asked.planned.number), asked.held or 0
        new = self._guessed[asked.planned.number]
        if way == "DIRECT":
            work = self.rates.direct_work(held, new)
            self._alone = None if len(self.d) else asked.planned.number
            self._longest = (0.0, 0)
            self.d.start(leg, work, asked.at)
        elif way == "PULL":
            self.p.start(leg, self.rates.pull_work(held, new), asked.at)
        else:
            self.p.start(leg, self.rates.full_work(held + new), asked.at)

    def prefilled(self, asked: Asked, way: Way, at: float) -> None:
        stretch = self.p.end(str(asked.planned.number), at)
        if stretch and self.learns:
            self.rates.observe_prefill(stretch)

    def first_token(self, asked: Asked, way: Way, at: float, waited_s: float) -> None:
        planned = asked.planned
        self.streams += 1
        self.ratios.observe(MODEL, planned.characters, planned.new)
        if way == "DIRECT":
            stretch = self.d.end(str(planned.number), at)
            if stretch and self.learns:
                self.rates.observe_direct(stretch)
            if self._alone == planned.number and self._longest[0] and self.learns:
                tokens = min(self.config.step_tokens, planned.new)
                held, (gap_s, streams) = asked.held or 0, self._longest
                self.rates.observe_gap(held, tokens, streams, gap_s)
        elif self.learns:
            prompt = (asked.held or 0) + self._guessed[planned.number]
            self.rates.observe_handover(prompt, waited_s)

    def stepped(self, step: Step) -> None:
        self.streams -= len(step.done)
        if not step.streams:
            self._alone = None
            return
        self._longest = max(self._longest, (step.end - step.start, step.streams))
        self._calm = None if len(self.d) else (step.end - step.start, step.streams)
