from disaggpair_bed.node.backoff import Backoff


def test_waits_double_from_ten_seconds_to_five_minutes() -> None:
    backoff = Backoff(10)
    assert [backoff.wait_after(1) for _ in range(8)] == [0, 10, 20, 40, 80, 160, 300, 300]


def test_the_base_scales_every_wait() -> None:
    backoff = Backoff(0.5)
    assert [backoff.wait_after(0) for _ in range(7)] == [0, 0.5, 1, 2, 4, 8, 15]


def test_ten_minutes_of_running_start_the_series_anew() -> None:
    backoff = Backoff(10)
    for _ in range(4):
        backoff.wait_after(1)
    assert backoff.wait_after(600) == 80
    assert [backoff.wait_after(601), backoff.wait_after(1)] == [0, 10]
