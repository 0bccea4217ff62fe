from disaggpair_bed.node.probes import ProbeState
from disaggpair_bed.node.spec import Handler, Probe


def state(passing: bool, success: int = 1, failure: int = 3) -> ProbeState:
    return ProbeState(
        Probe(Handler(), success_threshold=success, failure_threshold=failure), passing
    )


def test_a_failure_settles_only_after_the_threshold_in_a_row() -> None:
    probe = state(passing=True)
    settled = [probe.record(result) for result in (False, False, True, False, False, False)]
    assert settled == [False, False, True, False, False, True]
    assert not probe.passing


def test_a_success_settles_only_after_its_own_threshold() -> None:
    probe = state(passing=False, success=2)
    assert [probe.record(True), probe.passing] == [False, False]
    assert [probe.record(True), probe.passing] == [True, True]


def test_an_unsettled_result_leaves_the_last_one() -> None:
    probe = state(passing=True, failure=2)
    probe.record(False)
    assert probe.passing
