"""How owners hear of the end of a read, and until when they keep what is read."""

from typing import Any

from toypair.clock import CLOCK
from toypair.engine import Shape
from toypair.model import answer
from toypair.pair import FIRST, a_pair
from toypair.scenes import MORE, PROMPT, cold, ended, ends_rightly, parked, refused
from toypair.transport import FABRIC


def test_notifications_of_requests_that_the_scheduler_does_not_know_do_no_harm() -> None:
    with a_pair() as pair:
        held, handle = cold(pair)
        name = pair.p.add(held + MORE, handle)
        pair.p.run(name)
        assert ended(pair.d) == {"read": 1}  # P said so over HTTP
        agent = pair.d.worker.nixl_wrapper.name
        for notification in (b"decode-1:1", b"decode-99:1", b"HB:decode-1,decode-99"):
            FABRIC.tell("p", agent, notification)
        assert pair.decode(PROMPT, None).tokens == answer(PROMPT, 4)


def test_a_read_whose_end_is_not_told_over_http_ends_by_its_notification() -> None:
    with a_pair() as pair:
        held, handle = cold(pair)
        pair.p.reader.loses = {"finish"}
        pair.prefill(held + MORE, handle)
        assert ended(pair.d) == {}
        pair.decode([1], None)  # D sees notifications at a step
        assert ended(pair.d) == {"read": 1}


def test_a_read_whose_end_is_not_told_at_all_ends_by_its_time() -> None:
    with a_pair() as pair:
        held, handle = cold(pair)
        pair.p.reader.loses = {"finish"}
        FABRIC.loses_notifications = True
        pair.prefill(held + MORE, handle)
        pair.decode([1], None)
        assert ended(pair.d) == {}
        CLOCK.advance(33.0)
        pair.decode([1], None)
        assert ended(pair.d) == {"overdue": 1}


def test_heartbeats_keep_ps_blocks_while_a_d_leg_waits_for_its_own() -> None:
    with a_pair(None, Shape(seqs=1)) as pair:
        offer = pair.prefill(PROMPT).params
        first = pair.d.add([1], None, tokens=100)
        name = pair.d.add(PROMPT, offer, tokens=4)
        for _ in range(80):
            CLOCK.advance(1.0)
            pair.d.step()
            pair.p.step()
        pair.d.run(first)
        ends_rightly(pair.d, name, PROMPT, 4)
        assert len(FABRIC.done) == 1
        assert ended(pair.p) == {"read": 1}


def test_a_d_that_stood_still_does_not_begin_a_read_of_what_p_has_freed() -> None:
    with a_pair(None, Shape(seqs=1)) as pair:
        offer = pair.prefill(PROMPT).params
        first = pair.d.add([1], None, tokens=20)
        name = pair.d.add(PROMPT, offer, tokens=4)
        for _ in range(5):
            pair.d.step()
            pair.p.step()
        CLOCK.advance(60.0)
        pair.p.run(pair.p.add([3] * 60, FIRST))  # takes blocks
        pair.d.run(first)
        ends_rightly(pair.d, name, PROMPT, 4)
        assert FABRIC.done == []


def test_what_a_handshake_that_fails_leaves_is_nothing() -> None:
    with a_pair() as pair:
        held, handle = cold(pair)
        worker: Any = pair.p.worker
        worker._cleanup_remote_engine(pair.d.half.engine_id, log_eviction=False)
        worker.compat_hash += "+other"
        name = pair.p.add(held + MORE, handle)
        for _ in range(3):
            pair.p.step()
        pair.p.settle_handshakes()
        ends_rightly(pair.p, name, held + MORE)
        assert ended(pair.d) == {"released": 1}
        assert worker._read_deadlines == {}


def test_a_d_that_stood_still_while_it_read_does_not_use_what_p_has_freed() -> None:
    with a_pair(Shape(blocks=20)) as pair:
        offer = pair.prefill(PROMPT).params
        name = parked(pair, PROMPT, offer, role="d")
        for _ in range(45):
            CLOCK.advance(1.0)
            pair.p.step()
        assert pair.p.scheduler.requests == {}
        for first in range(4):  # P's blocks are others' now
            pair.p.run(pair.p.add([first] * 60, None))
        FABRIC.let_through(FABRIC.waiting()[0])
        ends_rightly(pair.d, name, PROMPT, 4)
        assert refused(pair.d) == {"failed": 1}
