"""Resets of the prefix cache, and sleep: leases and reads end before the memory goes."""

from concurrent.futures import ThreadPoolExecutor

from vllm.v1.core.sched.interface import PauseState
from vllm.v1.request import RequestStatus

from toypair.clock import CLOCK
from toypair.engine import ToyEngine
from toypair.pair import a_pair
from toypair.scenes import SMALL, ended, ends_rightly, parked, refused, three_leases, turn_alone
from toypair.transport import FABRIC


def test_a_reset_of_the_prefix_cache_ends_the_leases() -> None:
    with a_pair(None, SMALL) as pair:
        three_leases(pair)
        pair.settle()
        assert pair.d.scheduler.reset_prefix_cache()
        assert pair.d.leases == {}
        assert pair.d.pool.get_num_free_blocks() == 23


def test_a_reset_waits_for_a_lease_that_is_read() -> None:
    with a_pair(None, SMALL) as pair:
        held, handle = turn_alone(pair.d, [1] * 17)
        turn_alone(pair.d, [2] * 17)
        name = parked(pair, held + [5] * 5, handle)
        pair.settle_one(pair.d)
        with ThreadPoolExecutor(1) as thread:
            reset = thread.submit(pair.d.scheduler.reset_prefix_cache)
            (read,) = FABRIC.waiting()
            while pair.d.book.counts() != {"granted": 0, "claimed": 0, "reading": 1}:
                assert not reset.done()
            FABRIC.let_through(read)
            ends_rightly(pair.p, name, held + [5] * 5)
            assert reset.result(30)
        assert ended(pair.d) == {"read": 1, "reset": 1}
        assert pair.d.pool.get_num_free_blocks() == 23


def test_a_reset_takes_the_blocks_of_a_reader_that_is_overdue() -> None:
    with a_pair(None, SMALL.but(extra={"lease_read_s": 1.5})) as pair:
        held, handle = turn_alone(pair.d, [1] * 17)
        name = parked(pair, held + [5] * 5, handle)
        pair.settle_one(pair.d)
        with ThreadPoolExecutor(1) as thread:
            reset = thread.submit(pair.d.scheduler.reset_prefix_cache)
            CLOCK.advance(4.0)
            assert reset.result(30)
        assert ended(pair.d) == {"overdue": 1}
        FABRIC.let_through(FABRIC.waiting()[0])
        ends_rightly(pair.p, name, held + [5] * 5)
        assert refused(pair.p) == {"failed": 1}


def test_a_reset_beside_a_request_does_not_wait() -> None:
    with a_pair(None, SMALL) as pair:
        held, handle = turn_alone(pair.d, [1] * 17)
        name = parked(pair, held + [5] * 5, handle)
        running = pair.d.add([7] * 8, None, tokens=9)
        pair.d.step()
        assert not pair.d.scheduler.reset_prefix_cache()
        assert [lease.state for lease in pair.d.leases.values()] == ["reading"]
        FABRIC.let_through(FABRIC.waiting()[0])
        pair.d.run(running)
        ends_rightly(pair.p, name, held + [5] * 5)


def go_to_sleep(engine: ToyEngine) -> None:
    """Pause an engine as vLLM does before it sleeps, up to where its memory goes."""
    engine.scheduler.finish_requests(None, RequestStatus.FINISHED_ABORTED)
    engine.scheduler.set_pause_state(PauseState.PAUSED_NEW)


def test_a_p_that_is_put_to_sleep_keeps_what_d_reads_until_it_has() -> None:
    with a_pair(SMALL) as pair:
        prompt = [1] * 17
        offer = pair.prefill(prompt).params
        name = parked(pair, prompt, offer, role="d")
        go_to_sleep(pair.p)
        for _ in range(5):
            pair.p.step()
        assert pair.p.scheduler.has_requests()  # for which vLLM waits
        FABRIC.let_through(FABRIC.waiting()[0])
        pair.p.run()
        assert pair.p.scheduler.reset_prefix_cache(True, True)
        ends_rightly(pair.d, name, prompt, 4)
        pair.p.scheduler.set_pause_state(PauseState.UNPAUSED)


def test_a_p_that_is_put_to_sleep_ends_its_leases_in_their_time() -> None:
    with a_pair(SMALL) as pair:
        prompt = [1] * 17
        offer = pair.prefill(prompt).params
        go_to_sleep(pair.p)
        for _ in range(40):
            pair.p.step()
            CLOCK.advance(1.0)
        assert not pair.p.scheduler.has_requests()
        assert pair.p.scheduler.reset_prefix_cache(True, True)
        pair.decode(prompt, offer)
        assert refused(pair.d) == {"unknown": 1}
        pair.p.scheduler.set_pause_state(PauseState.UNPAUSED)


def test_a_p_that_is_put_to_sleep_while_it_reads_waits_for_its_read() -> None:
    with a_pair(SMALL) as pair:
        held, handle = turn_alone(pair.d, [1] * 17)
        name = parked(pair, held + [5] * 5, handle)
        go_to_sleep(pair.p)
        pair.p.outcomes[name].reason = "abort"
        for _ in range(5):
            pair.p.step()
        assert pair.p.scheduler.has_requests()
        FABRIC.let_through(FABRIC.waiting()[0])
        pair.p.run()
        assert pair.p.scheduler.reset_prefix_cache(True, True)
        pair.p.scheduler.set_pause_state(PauseState.UNPAUSED)
