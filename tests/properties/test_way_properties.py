"""The choice is monotonic in the new tokens unless D computes faster than P; estimates stay finite,
positive and in bounds."""

from dataclasses import replace
from math import isfinite

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from disaggpair_router.way.backlog import Backlog, Load, Stretch, Work
from disaggpair_router.way.choice import Turn, choose
from disaggpair_router.way.config import WayConfig
from disaggpair_router.way.fit import HIGHEST, LOWEST, Ewma, Fit
from disaggpair_router.way.rates import Rates
from disaggpair_router.way.tokens import MAX_TOKENS, TokenRatios

ANY = st.floats(allow_nan=True, allow_infinity=True)
TOKENS = st.integers(1, 200_000)
LOADS = st.builds(
    Load,
    ahead_s=st.floats(0, 100),
    ahead_tokens=st.integers(0, 100_000),
    streams=st.integers(0, 256),
)
CONFIGS = st.builds(
    WayConfig,
    direct=st.booleans(),
    max_new_tokens=st.integers(0, 20_000),
    gap_budget_s=st.floats(0.01, 1.0),
    step_tokens=st.integers(16, 16_384),
    hysteresis=st.floats(0, 1),
)


@st.composite
def taught(draw: st.DrawFn) -> Rates:
    """Rates after anything that engines may have shown."""
    rates = Rates()
    seconds = st.floats(1e-4, 1e3)
    for _ in range(draw(st.integers(0, 8))):
        held, new = draw(st.integers(0, 100_000)), draw(TOKENS)
        rates.observe_prefill(Stretch(rates.pull_work(held, new).parts, draw(seconds)))
        rates.observe_prefill(Stretch(rates.full_work(new).parts, draw(seconds)))
        rates.observe_direct(Stretch(rates.direct_work(held, new).parts, draw(seconds)))
        rates.observe_handover(held, draw(seconds))
        rates.observe_gap(held, min(new, 512), draw(st.integers(1, 99)), draw(seconds))
    return rates


@given(
    rates=taught(),
    turn=st.builds(Turn, new=TOKENS, held=st.integers(64, 200_000)),
    more=TOKENS,
    prefill=LOADS,
    decode=LOADS,
    config=CONFIGS,
)
@settings(deadline=None)
def test_more_new_tokens_turn_pull_into_direct_only_where_d_computes_faster(
    rates: Rates, turn: Turn, more: int, prefill: Load, decode: Load, config: WayConfig
) -> None:
    assume(all(rates._direct.multiplier(part) >= 1 for part in ("token", "attention")))

    def way(turn: Turn) -> str:
        return choose(turn, rates, config, prefill=prefill, decode=decode).way

    if way(turn) == "PULL":
        assert way(replace(turn, new=turn.new + more)) != "DIRECT"


@given(
    rates=taught(),
    held=st.integers(64, 200_000),
    new=TOKENS,
    prefill=LOADS,
    decode=LOADS,
    more=st.floats(0, 100),
)
@settings(deadline=None)
def test_more_work_at_an_engine_never_draws_a_turn_to_it(
    rates: Rates, held: int, new: int, prefill: Load, decode: Load, more: float
) -> None:
    turn, config = Turn(new, held), WayConfig()
    before = choose(turn, rates, config, prefill=prefill, decode=decode).way
    busier = replace(decode, ahead_s=decode.ahead_s + more)
    if before != "DIRECT":
        after = choose(turn, rates, config, prefill=prefill, decode=busier).way
        assert after != "DIRECT"


@given(
    rates=taught(),
    new=st.integers(-5, 10**30),
    held=st.none() | st.integers(-5, 10**30),
    prefill=LOADS,
    decode=LOADS,
    config=CONFIGS,
)
@settings(deadline=None)
def test_estimates_are_finite_and_positive(
    rates: Rates, new: int, held: int | None, prefill: Load, decode: Load, config: WayConfig
) -> None:
    decision = choose(Turn(new, held), rates, config, prefill=prefill, decode=decode)
    assert decision.way in decision.seconds
    assert all(isfinite(seconds) and seconds > 0 for seconds in decision.seconds.values())
    assert decision.gap_s is None or (isfinite(decision.gap_s) and decision.gap_s >= 0)


@given(observed=st.lists(st.tuples(ANY, ANY, ANY)))
def test_a_model_stays_in_bounds(observed: list[tuple[float, float, float]]) -> None:
    fit = Fit("one", "other")
    for one, other, seconds in observed:
        fit.observe({"one": one, "other": other}, seconds)
    for name in ("one", "other"):
        assert LOWEST <= fit.multiplier(name) <= HIGHEST


@given(observed=st.lists(st.tuples(ANY, ANY)))
def test_an_average_stays_in_bounds(observed: list[tuple[float, float]]) -> None:
    average = Ewma(1.0, 0.5, 2.0)
    for value, weight in observed:
        average.observe(value, weight)
    assert 0.5 <= average.value <= 2.0


@given(
    observed=st.lists(st.tuples(st.integers(), st.integers(), st.integers(0, 99))),
    characters=st.integers(),
)
def test_an_estimate_of_tokens_stays_in_bounds(
    observed: list[tuple[int, int, int]], characters: int
) -> None:
    ratios = TokenRatios()
    for seen, tokens, messages in observed:
        ratios.observe("m", seen, tokens, messages)
    assert 1 <= ratios.tokens("m", characters) <= MAX_TOKENS


STEPS = st.tuples(
    st.sampled_from("abcd"),
    st.sampled_from(["start", "end", "drop"]),
    st.floats(0, 5),
    st.floats(0, 3),
)


@given(steps=st.lists(STEPS))
def test_no_more_is_ahead_than_the_work_in_flight(
    steps: list[tuple[str, str, float, float]],
) -> None:
    backlog, now, work = Backlog(), 0.0, dict[str, float]()
    for leg, act, wait, seconds in steps:
        now += wait
        if act == "start" and leg not in work:
            work[leg] = seconds
            backlog.start(leg, Work({"token": seconds}, seconds, 0.1, 10), now)
        elif act == "end":
            work.pop(leg, None)
            backlog.end(leg, now)
        elif act == "drop":
            work.pop(leg, None)
            backlog.drop(leg, now)
        load = backlog.load(now)
        assert 0 <= load.ahead_s <= sum(work.values()) + 1e-9
        assert load.ahead_tokens == 10 * len(work) == 10 * len(backlog)
