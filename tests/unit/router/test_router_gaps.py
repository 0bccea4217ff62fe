"""What the streams of a D show of the prompts that it computes."""

from disaggpair_router.gaps import Gaps


def test_the_longest_gap_beside_one_prompt_is_its_doing() -> None:
    gaps = Gaps()
    gaps.see(5.0)
    gaps.begin_prefill()
    for gap_s in (0.03, 0.08, 0.05):
        gaps.see(gap_s)
    assert gaps.end_prefill() == 0.08
    gaps.begin_prefill()
    gaps.see(0.04)
    assert gaps.end_prefill() == 0.04


def test_without_a_gap_there_is_nothing_to_learn() -> None:
    gaps = Gaps()
    gaps.begin_prefill()
    assert gaps.end_prefill() is None
    assert gaps.end_prefill() is None


def test_of_two_prompts_at_once_neither_is_blamed() -> None:
    gaps = Gaps()
    gaps.begin_prefill()
    gaps.see(0.05)
    gaps.begin_prefill()
    gaps.see(0.09)
    assert gaps.end_prefill() is None
    gaps.see(0.07)
    assert gaps.end_prefill() is None
    gaps.begin_prefill()
    gaps.see(0.06)
    assert gaps.end_prefill() == 0.06
