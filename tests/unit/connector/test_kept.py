"""What D knows of how long P keeps what D reads."""

from disaggpair_connector.kept import Kept, heartbeat_margin_s


def test_ps_answer_says_until_when_the_blocks_are_kept() -> None:
    kept = Kept(gained_s=20.0, hung_s=300.0)
    kept.answered("a", 110.0)
    assert kept.until("a") == 110.0


def test_a_heartbeat_in_time_keeps_them_longer() -> None:
    kept = Kept(gained_s=20.0, hung_s=300.0)
    kept.answered("a", 110.0)
    kept.beat(105.0)
    kept.beat(124.0)
    assert kept.until("a") == 144.0


def test_a_heartbeat_keeps_nothing_that_it_cannot_name() -> None:
    kept = Kept(gained_s=20.0, hung_s=300.0)
    kept.answered("a", 110.0, is_renewable=False)
    kept.beat(105.0)
    assert kept.until("a") == 110.0


def test_a_heartbeat_never_shortens_the_time() -> None:
    kept = Kept(gained_s=20.0, hung_s=300.0)
    kept.answered("a", 150.0)
    kept.beat(105.0)
    assert kept.until("a") == 150.0


def test_a_heartbeat_after_the_time_brings_nothing_back() -> None:
    kept = Kept(gained_s=20.0, hung_s=300.0)
    kept.answered("a", 110.0)
    kept.beat(110.1)
    kept.beat(111.0)
    assert kept.until("a") == 110.0


def test_a_read_that_begins_has_to_end_while_the_blocks_are_kept() -> None:
    kept = Kept(gained_s=20.0, hung_s=300.0)
    kept.answered("a", 110.0)
    assert kept.begin("a", 103.0) == 110.0
    assert kept.beat(105.0) == {"a": 125.0}


def test_a_read_that_takes_too_long_ends_however_long_the_blocks_are_kept() -> None:
    kept = Kept(gained_s=20.0, hung_s=30.0)
    kept.answered("a", 110.0)
    kept.begin("a", 100.0)
    kept.beat(109.0)
    assert kept.beat(128.0) == {"a": 130.0}


def test_a_read_that_has_not_begun_has_no_end() -> None:
    kept = Kept(gained_s=20.0, hung_s=30.0)
    kept.answered("a", 110.0)
    assert kept.beat(105.0) == {}


def test_what_is_forgotten_is_not_kept_in_mind() -> None:
    kept = Kept(gained_s=20.0, hung_s=30.0)
    kept.answered("a", 110.0)
    kept.begin("a", 100.0)
    kept.forget("a")
    kept.forget("b")
    assert kept.beat(105.0) == {}


def test_a_short_lease_leaves_time_to_begin_a_read() -> None:
    assert heartbeat_margin_s(10.0) == 5.0
    assert heartbeat_margin_s(200.0) == 5.0
    assert heartbeat_margin_s(2.0) == 1.0
