"""The way of each turn, and what later choices learn from it: the hands of `way`.

`turn` asks for a plan once the engines are chosen, and the legs tell it what happens to them. All
that is pure is in `way`; here are the clock, the load as this router knows it, and the memory.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from disaggpair_router.gaps import Gaps
from disaggpair_router.held import HeldHistory, TurnKV
from disaggpair_router.metrics import Metrics
from disaggpair_router.pick import Choice
from disaggpair_router.plan import Plan, PrefillNote
from disaggpair_router.request import TurnRequest
from disaggpair_router.turnlog import TurnRecord
from disaggpair_router.way.backlog import Backlog, Load, Work
from disaggpair_router.way.choice import Decision, Turn, Way, choose
from disaggpair_router.way.config import WayConfig
from disaggpair_router.way.rates import Rates
from disaggpair_router.way.tokens import TokenRatios

_REMEMBERED: Final = 20_000
"""Conversations whose last way is known."""


class ChosenPlan:
    """The plan of a turn that is measured, and has a choice if D holds its history."""

    has_choice = True

    def __init__(self, plans: "ChosenPlans", request: TurnRequest, kv: TurnKV) -> None:
        self._plans = plans
        self._request = request
        self._held: HeldHistory | None = kv.history
        self._characters, self._messages = _new(request, self._held)
        model = request.model
        self._new = plans.ratios.tokens(model, self._characters, self._messages)
        self._leg: tuple[Backlog, str] | None = None
        self._gaps: Gaps | None = None
        self._last_token: float | None = None
        self._began: float | None = None
        self.way: Way | None = None
        self.may_read = True
        """Whether the P leg may take what D holds."""

    @property
    def held(self) -> int:
        """Tokens of the history that one D holds."""
        return self._held.tokens if self._held else 0

    def decide(self, choice: Choice, kv: TurnKV, record: TurnRecord) -> Decision | None:
        """The way with these engines; None when there is nothing to choose."""
        if self._held is None or choice.prefill is None or choice.decode.name != kv.holder:
            return None
        plans = self._plans
        turn = Turn(
            new=self._new,
            held=self.held,
            last=plans.last(self._request.conversation.key),
            forced=self._request.forced,
        )
        decision = choose(
            turn,
            plans.rates,
            plans.config,
            prefill=plans.prefill_load(choice.prefill.name),
            decode=plans.decode_load(choice.decode.name),
        )
        plans.metrics.ways.labels(decision.way, decision.reason).inc()
        self.may_read = decision.way != "FULL"
        record.why = decision.reason
        record.estimates = dict(decision.seconds)
        return decision

    @contextmanager
    def prefilling(self, prefill: str, *, reads: bool) -> Iterator[PrefillNote]:
        """A P leg is in flight while the block runs."""
        note = PrefillNote()
        rates = self._plans.rates
        work = (
            rates.pull_work(self.held, self._new)
            if reads
            else rates.full_work(self.held + self._new)
        )
        self.way = "PULL" if reads else "FULL"
        backlog = self._begin(self._plans.prefills, prefill, work)
        try:
            yield note
        except BaseException:
            backlog.drop(self._request.request_id, self._plans.clock())
            raise
        if note.cached_tokens if not reads else self._held is None:
            # P had some of the prompt already, or read what is common with an edited history:
            # of how much it computed nothing is known here.
            backlog.drop(self._request.request_id, self._plans.clock())
            return
        stretch = backlog.end(self._request.request_id, self._plans.clock())
        if stretch is not None:
            rates.observe_prefill(stretch)

    @contextmanager
    def decoding(self, decode: str, *, direct: bool) -> Iterator[None]:
        """A D leg is in flight while the block runs."""
        self._began = self._plans.clock()
        self._gaps = self._plans.gaps.setdefault(decode, Gaps())
        if direct:
            self._gaps.begin_prefill()
            self.way = "DIRECT"
            work = self._plans.rates.direct_work(self.held, self._new)
            self._leg = self._begin(self._plans.decodes, decode, work), self._request.request_id
        try:
            yield
        finally:
            # Without a first token of its own an answer tells nothing of the time to one.
            if self._leg is not None:
                self._leg[0].drop(self._leg[1], self._plans.clock())
                self._gaps.end_prefill()
            if self._last_token is not None:
                self._gaps.streams -= 1
            self._leg, self._began, self._last_token = None, None, None

    def token(self) -> None:
        """A piece of D's stream has come."""
        if self._gaps is None:
            return
        now = self._plans.clock()
        if self._last_token is None:
            self._first_token(now)
            self._gaps.streams += 1
        else:
            self._gaps.see(now - self._last_token)
        self._last_token = now

    def _first_token(self, now: float) -> None:
        began, self._began = self._began, None
        if began is None:
            return
        if self._leg is not None:
            self._learn_gap()
            stretch = self._leg[0].end(self._leg[1], now)
            if stretch is not None:
                self._plans.rates.observe_direct(stretch)
        elif self.way is not None:
            self._plans.rates.observe_handover(self.held + self._new, now - began)

    def _learn_gap(self) -> None:
        """What the turn did to D's other streams."""
        assert self._gaps is not None
        streams = self._gaps.streams
        longest_s = self._gaps.end_prefill()
        if longest_s is not None and streams:
            rates, step = self._plans.rates, self._plans.step_tokens
            rates.observe_gap(self.held, min(self._new, step), streams, longest_s)

    def ended(self, record: TurnRecord) -> None:
        """The turn has an answer: learn what its tokens were, and keep to its way."""
        if self.way is None:
            return
        self._plans.remember(self._request.conversation.key, self.way)
        if self._held is not None and record.prompt_tokens is not None:
            new = record.prompt_tokens - self.held
            self._plans.ratios.observe(self._request.model, self._characters, new, self._messages)

    def _begin(self, backlogs: dict[str, Backlog], name: str, work: Work) -> Backlog:
        backlog = backlogs.setdefault(name, Backlog())
        backlog.start(self._request.request_id, work, self._plans.clock())
        return backlog


class ChosenPlans:
    """What is known of the ways of the pair, for all turns of one router."""

    def __init__(
        self,
        config: WayConfig,
        *,
        metrics: Metrics,
        clock: Callable[[], float],
    ) -> None:
        self.config = config
        self.metrics = metrics
        self.clock = clock
        self.rates = Rates(step_tokens=config.step_tokens)
        self.ratios = TokenRatios()
        self.gaps: dict[str, Gaps] = {}
        self.step_tokens = config.step_tokens
        self.prefills: dict[str, Backlog] = {}
        self.decodes: dict[str, Backlog] = {}
        self._last: OrderedDict[bytes, Way] = OrderedDict()

    def plan(self, request: TurnRequest, kv: TurnKV) -> Plan:
        """See `Planning`."""
        return ChosenPlan(self, request, kv)

    def prefill_load(self, name: str) -> Load:
        """What stands before a leg at a P."""
        return self._load(self.prefills, name, 0)

    def decode_load(self, name: str) -> Load:
        """What stands before a turn at a D, and the streams of this router there."""
        gaps = self.gaps.get(name)
        return self._load(self.decodes, name, gaps.streams if gaps else 0)

    def last(self, key: bytes) -> Way | None:
        """The way of a conversation's last turn."""
        return self._last.get(key)

    def remember(self, key: bytes, way: Way) -> None:
        """A turn of a conversation has run."""
        self._last[key] = way
        self._last.move_to_end(key)
        if len(self._last) > _REMEMBERED:
            self._last.popitem(last=False)

    def _load(self, backlogs: dict[str, Backlog], name: str, streams: int) -> Load:
        backlog = backlogs.get(name)
        return backlog.load(self.clock(), streams=streams) if backlog else Load(streams=streams)


def _new(request: TurnRequest, held: HeldHistory | None) -> tuple[int, int]:
    """Characters and messages that no D holds."""
    history = request.history
    if history is None:
        return 1, 1
    return history.size(0) if held is None else history.size_after(held.length)
