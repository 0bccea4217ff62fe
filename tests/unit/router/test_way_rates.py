import pytest

from disaggpair_router.way.backlog import IDLE, Load, Stretch
from disaggpair_router.way.rates import Rates

MEASURED_S: dict[str, dict[int, dict[int, float]]] = {
    "FULL": {
        8_000: {128: 1.025, 512: 1.124, 2_048: 1.330, 8_192: 2.231},
        24_000: {128: 3.556, 512: 3.649, 2_048: 3.945},
    },
    "PULL": {
        8_000: {128: 0.204, 512: 0.222, 2_048: 0.428, 8_192: 1.383},
        24_000: {128: 0.326, 512: 0.359, 2_048: 0.658},
    },
    "DIRECT": {
        8_000: {128: 0.094, 512: 0.128, 2_048: 0.345, 8_192: 1.323},
        24_000: {128: 0.180, 512: 0.229, 2_048: 0.500},
    },
}
"""Chat turns through the router, alone on the engines (docs/benchmarks.md)."""
MEASURED = [
    (way, held, new, seconds)
    for way, table in MEASURED_S.items()
    for held, row in table.items()
    for new, seconds in row.items()
]


@pytest.mark.parametrize(("way", "held", "new", "seconds"), MEASURED)
def test_the_prior_is_near_what_was_measured(way: str, held: int, new: int, seconds: float) -> None:
    rates = Rates()
    estimate_s = {
        "FULL": rates.full_s(held, new, IDLE),
        "PULL": rates.pull_s(held, new, IDLE),
        "DIRECT": rates.direct_s(held, new, IDLE),
    }[way]
    assert estimate_s == pytest.approx(seconds, rel=0.15)


def test_what_is_ahead_is_waited_for() -> None:
    rates, busy = Rates(), Load(ahead_s=2.0)
    for estimate in (rates.full_s, rates.pull_s, rates.direct_s):
        assert estimate(8_000, 500, busy) == pytest.approx(2.0 + estimate(8_000, 500, IDLE))


@pytest.mark.parametrize(
    ("tokens", "gap_s"), [(0, 0.031), (256, 0.053), (512, 0.078), (4_096, 0.078)]
)
def test_the_gap_is_near_what_was_measured(tokens: int, gap_s: float) -> None:
    assert Rates().gap_s(8_000, tokens, Load(streams=4)) == pytest.approx(gap_s, rel=0.08)


def test_a_longer_step_makes_a_longer_gap() -> None:
    rates = Rates(step_tokens=8_192)
    assert rates.gap_s(8_000, 1_024, Load(streams=4)) == pytest.approx(0.121, rel=0.08)


def test_tokens_that_are_ahead_fill_the_step_too() -> None:
    rates = Rates()
    alone = rates.gap_s(8_000, 64, Load(streams=4))
    assert rates.gap_s(8_000, 64, Load(streams=4, ahead_tokens=900)) > alone + 0.03


def test_without_streams_nobody_has_a_gap() -> None:
    assert Rates().gap_s(8_000, 4_096, IDLE) == 0.0


def test_what_p_teaches_is_believed_of_d() -> None:
    rates = Rates()
    before = rates.direct_s(8_000, 2_000, IDLE)
    for tokens in [1_000, 4_000, 8_000] * 20:
        work = rates.full_work(tokens)
        rates.observe_prefill(Stretch(work.parts, sum(work.parts.values()) / 4))
    assert rates.direct_s(8_000, 2_000, IDLE) < 0.6 * before
    assert rates.p_leg_s < 0.25


def test_a_slow_d_teaches_nothing_of_p() -> None:
    rates = Rates()
    pull_s, direct_s = rates.pull_s(8_000, 2_000, IDLE), rates.direct_s(8_000, 2_000, IDLE)
    for tokens in [500, 1_000, 2_000] * 20:
        work = rates.direct_work(8_000, tokens)
        rates.observe_direct(Stretch(work.parts, 3 * sum(work.parts.values())))
    assert rates.pull_s(8_000, 2_000, IDLE) == pull_s
    assert rates.direct_s(8_000, 2_000, IDLE) > 2 * direct_s
    assert rates.direct_leg_s > 0.1


def test_a_slow_read_makes_pull_slow_for_long_histories() -> None:
    rates = Rates()
    for held, new in [(4_000, 500), (24_000, 500), (8_000, 2_000), (16_000, 100)] * 20:
        work = rates.pull_work(held, new)
        parts = dict(work.parts)
        rates.observe_prefill(Stretch(parts, sum(parts.values()) + 6 * parts["read"]))
    assert rates.pull_s(24_000, 500, IDLE) > 0.6
    assert rates.direct_s(24_000, 500, IDLE) < 0.3


def test_a_slow_handover_makes_both_ways_over_p_slow() -> None:
    rates = Rates()
    full_s, pull_s = rates.full_s(8_000, 100, IDLE), rates.pull_s(8_000, 100, IDLE)
    for _ in range(50):
        rates.observe_handover(0, 0.5)
        rates.observe_handover(8_000, 0.5)
    assert rates.full_s(8_000, 100, IDLE) > full_s + 0.3
    assert rates.pull_s(8_000, 100, IDLE) > pull_s + 0.3


def test_gaps_teach_what_a_step_takes() -> None:
    rates, four = Rates(), Load(streams=4)
    for _ in range(100):
        rates.observe_gap(8_000, 0, 4, 0.015)
        rates.observe_gap(8_000, 256, 4, 0.030)
        rates.observe_gap(16_000, 512, 4, 0.050)
    assert rates.gap_s(8_000, 0, four) == pytest.approx(0.015, rel=0.1)
    assert rates.gap_s(16_000, 4_096, four) == pytest.approx(0.050, rel=0.1)


def test_work_leaves_the_latency_out() -> None:
    work = Rates().pull_work(8_000, 64)
    assert work.seconds == pytest.approx(0.0347, rel=0.02)
    assert work.latency_s == pytest.approx(0.0517, rel=0.02)
    assert work.tokens == 64
