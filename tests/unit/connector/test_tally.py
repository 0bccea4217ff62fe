"""What a scheduler half reports of its counts, and when."""

from disaggpair_connector import tally
from disaggpair_connector.counters import Counters
from disaggpair_connector.lease import State
from disaggpair_connector.tally import KEYS, Tally, series

NO_LEASES: dict[State, int] = {"granted": 0, "claimed": 0, "reading": 0}


def test_what_was_taken_is_not_reported_again() -> None:
    counts = Tally()
    counts.refused("late")
    counts.refused("late")
    counts.verified(600)
    counts.digest(0.25)
    assert counts.take() == {
        "disaggpair:refused_reads|late": [1, 1],
        "disaggpair:verified_tokens": [600],
        "disaggpair:digest_seconds": [0.25],
    }
    assert counts.take() == {}


def test_a_read_of_nothing_is_not_counted() -> None:
    counts = Tally()
    counts.verified(0)
    assert counts.take() == {}


def test_of_counters_that_only_grow_the_growth_is_reported() -> None:
    counts, counters = Tally(), Counters()
    counters.claims_won, counters.block_seconds = 2, 1.5
    counters.ended["read"] = 3
    counts.leases(counters, NO_LEASES)
    counters.claims_won, counters.claims_lost = 5, 1
    counts.leases(counters, NO_LEASES)
    assert counts.take() == {
        "disaggpair:claims|won": [2, 3],
        "disaggpair:claims|lost": [1],
        "disaggpair:lease_block_seconds": [1.5],
        "disaggpair:leases_ended|read": [3],
    }
    counts.leases(counters, NO_LEASES)
    assert counts.take() == {}


def test_of_gauges_the_last_value_is_reported_when_it_is_another() -> None:
    counts = Tally()
    counts.leases(Counters(), {**NO_LEASES, "granted": 2})
    counts.leases(Counters(), {**NO_LEASES, "granted": 1})
    assert counts.take() == {"disaggpair:leases|granted": [1]}
    counts.leases(Counters(), {**NO_LEASES, "granted": 1})
    assert counts.take() == {}
    counts.leases(Counters(), NO_LEASES)
    assert counts.take() == {"disaggpair:leases|granted": [0]}


def test_every_name_that_is_reported_is_declared() -> None:
    counts, counters = Tally(), Counters()
    for reason in tally.LABELLED[tally.REFUSED][1]:
        counts.refused(reason)  # type: ignore[arg-type]  # the values of the literal
    counts.verified(1)
    counts.digest(1.0)
    counters.claims_won = counters.claims_lost = 1
    counters.block_seconds = 1.0
    counters.ended = dict.fromkeys(counters.ended, 1)
    counts.leases(counters, {"granted": 1, "claimed": 1, "reading": 1})
    assert counts.take().keys() == set(KEYS)


def test_a_report_is_read_by_metric_and_label() -> None:
    report = {"disaggpair:leases|granted": [1.0], "disaggpair:leases|reading": [], "else": [2.0]}
    assert series(report, tally.LEASES) == {"granted": [1.0]}
