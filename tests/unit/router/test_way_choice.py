import pytest
from pydantic import ValidationError

from disaggpair_router.way.backlog import IDLE, Load
from disaggpair_router.way.choice import Reason, Turn, Way, choose
from disaggpair_router.way.config import WayConfig
from disaggpair_router.way.rates import Rates

USUAL = WayConfig()
SMALL, LARGE = 256, 4_096
STREAMS = Load(streams=4)


@pytest.mark.parametrize(
    ("turn", "prefill", "decode", "config", "way", "reason"),
    [
        (Turn(SMALL), IDLE, IDLE, USUAL, "FULL", "no_lease"),
        (Turn(SMALL, 0), IDLE, IDLE, USUAL, "FULL", "no_lease"),
        (Turn(SMALL, 8_000), IDLE, STREAMS, USUAL, "DIRECT", "few_new_tokens"),
        (Turn(SMALL, 50), IDLE, IDLE, USUAL, "DIRECT", "few_new_tokens"),
        (Turn(SMALL, 8_000), IDLE, Load(1.0), USUAL, "PULL", "decode_busy"),
        (Turn(LARGE, 8_000), Load(1.0), Load(0.5), USUAL, "DIRECT", "prefill_busy"),
        (Turn(9_000, 8_000), IDLE, IDLE, USUAL, "PULL", "many_new_tokens"),
        (Turn(SMALL, 80_000), IDLE, STREAMS, USUAL, "PULL", "gap_budget"),
        (Turn(SMALL, 80_000), IDLE, IDLE, USUAL, "DIRECT", "few_new_tokens"),
        (Turn(SMALL, 8_000), IDLE, IDLE, WayConfig(direct=False), "PULL", "direct_off"),
        (Turn(SMALL, 70), IDLE, Load(1.0), USUAL, "FULL", "decode_busy"),
        (Turn(9_000, 70), IDLE, Load(9.0), USUAL, "FULL", "short_history"),
    ],
)
def test_ways(
    turn: Turn, prefill: Load, decode: Load, config: WayConfig, way: Way, reason: Reason
) -> None:
    decision = choose(turn, Rates(), config, prefill=prefill, decode=decode)
    assert (decision.way, decision.reason) == (way, reason)


def test_pull_is_the_fastest_where_direct_has_become_slow() -> None:
    rates = Rates()
    for _ in range(100):
        work = rates.direct_work(8_000, 2_000)
        rates.observe_gap(8_000, 512, 4, 0.06)
        rates._direct.observe(work.parts, 2.0)
    decision = choose(Turn(2_000, 8_000), rates, USUAL)
    assert (decision.way, decision.reason) == ("PULL", "many_new_tokens")


def test_a_decision_tells_what_each_way_would_take() -> None:
    decision = choose(Turn(SMALL, 8_000), Rates(), USUAL, decode=STREAMS)
    assert list(decision.seconds) == ["FULL", "PULL", "DIRECT"]
    assert decision.seconds["DIRECT"] < decision.seconds["PULL"] < decision.seconds["FULL"]
    assert decision.gap_s == pytest.approx(0.053, rel=0.05)


def test_without_a_lease_only_full_is_considered() -> None:
    decision = choose(Turn(SMALL), Rates(), USUAL, decode=STREAMS)
    assert list(decision.seconds) == ["FULL"]
    assert decision.gap_s is None


def test_history_below_the_engines_threshold_is_not_pulled() -> None:
    assert "PULL" not in choose(Turn(SMALL, 63), Rates(), USUAL).seconds
    assert "PULL" in choose(Turn(SMALL, 64), Rates(), USUAL).seconds


@pytest.mark.parametrize("last", ["PULL", "DIRECT"])
def test_a_small_advantage_changes_no_way(last: Way) -> None:
    even = Load(0.08)
    decision = choose(Turn(SMALL, 8_000, last=last), Rates(), USUAL, decode=even)
    assert decision.seconds["PULL"] == pytest.approx(decision.seconds["DIRECT"], abs=0.015)
    assert decision.way == last


def test_a_large_advantage_changes_the_way() -> None:
    decision = choose(Turn(SMALL, 8_000, last="PULL"), Rates(), USUAL)
    assert (decision.way, decision.reason) == ("DIRECT", "few_new_tokens")


def test_a_wait_that_ways_share_makes_no_advantage_small() -> None:
    turn = Turn(SMALL, 8_000, last="FULL")
    decision = choose(turn, Rates(), USUAL, prefill=Load(60.0), decode=Load(99.0))
    assert decision.way == "PULL"


def test_a_way_that_is_not_allowed_is_not_kept() -> None:
    turn = Turn(SMALL, 80_000, last="DIRECT")
    assert choose(turn, Rates(), USUAL, decode=STREAMS).way == "PULL"


@pytest.mark.parametrize("forced", ["FULL", "PULL", "DIRECT"])
def test_a_way_that_is_asked_for_is_taken_whatever_it_costs(forced: Way) -> None:
    turn = Turn(20_000, 80_000, forced=forced)
    decision = choose(turn, Rates(), USUAL, prefill=Load(9.0), decode=Load(9.0, 900, 40))
    assert (decision.way, decision.reason, decision.denied) == (forced, "forced", None)


@pytest.mark.parametrize(
    ("turn", "config"),
    [
        (Turn(SMALL, None, forced="PULL"), USUAL),
        (Turn(SMALL, None, forced="DIRECT"), USUAL),
        (Turn(SMALL, 8_000, forced="DIRECT"), WayConfig(direct=False)),
    ],
)
def test_a_way_that_is_asked_for_and_not_possible_is_named(turn: Turn, config: WayConfig) -> None:
    decision = choose(turn, Rates(), config)
    assert decision.denied == turn.forced
    assert decision.way != turn.forced
    assert decision.reason != "forced"


def test_the_configuration_refuses_what_makes_no_sense() -> None:
    for wrong in ({"gap_budget_s": 0}, {"step_tokens": 0}, {"hysteresis": 2}, {"diret": True}):
        with pytest.raises(ValidationError):
            WayConfig.model_validate(wrong)
