"""A P asks a D for its leases, and gives back what it does not use."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from disaggpair_bed.fakes.rawhttp import BLOCK_SIZE, BOUND_S, grant
from disaggpair_connector.book import LeaseBook
from disaggpair_connector.listener import LeaseListener
from disaggpair_connector.listener_connection import Limits
from disaggpair_connector.reader import LeaseReader, Ticket
from disaggpair_connector.wire import Declined, ReadAnswer

HOST = "127.0.0.1"


@pytest.fixture
def book() -> LeaseBook:
    return LeaseBook(epoch="e1", ttl_s=100, claim_s=10, read_s=20)


def listener_of(book: LeaseBook, limits: Limits | None = None, host: str = HOST) -> LeaseListener:
    return LeaseListener(
        book, host=host, port=0, key=None, block_size=BLOCK_SIZE, read_s=20, limits=limits
    )


@pytest.fixture
def port(book: LeaseBook) -> Iterator[int]:
    listener = listener_of(book)
    yield listener.start()
    listener.stop()


@pytest.fixture
def reader() -> Iterator[LeaseReader]:
    reader = LeaseReader()
    yield reader
    reader.close()


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + BOUND_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def answer(ticket: Ticket) -> ReadAnswer | Declined:
    wait_for(ticket.done)
    return ticket.result()


def test_a_read_that_d_allows_has_what_d_holds(
    book: LeaseBook, port: int, reader: LeaseReader
) -> None:
    lease = grant(book, "a")
    found = answer(reader.ask(HOST, port, "a", lease.token))
    assert isinstance(found, ReadAnswer)
    assert found.digests == lease.digests
    assert found.peer.request_id == "request-of-a"
    assert book.counts()["reading"] == 1


@pytest.mark.parametrize("host", ["localhost", "::1"])
def test_names_and_ipv6_are_asked_too(book: LeaseBook, reader: LeaseReader, host: str) -> None:
    listener = listener_of(book, host=host)
    try:
        port = listener.start()
    except Exception:
        pytest.skip("this machine has no IPv6")
    lease = grant(book, "a")
    assert isinstance(answer(reader.ask(host, port, "a", lease.token)), ReadAnswer)
    listener.stop()


def test_ds_refusals_keep_their_reasons(book: LeaseBook, port: int, reader: LeaseReader) -> None:
    lease = grant(book, "a")
    assert answer(reader.ask(HOST, port, "a", "wrong")) == Declined("token")
    assert answer(reader.ask(HOST, port, "b", lease.token)) == Declined("unknown")
    assert isinstance(answer(reader.ask(HOST, port, "a", lease.token)), ReadAnswer)
    assert answer(reader.ask(HOST, port, "a", lease.token)) == Declined("taken")


def test_a_refused_question_releases_nothing_of_who_reads(
    book: LeaseBook, port: int, reader: LeaseReader
) -> None:
    lease = grant(book, "a")
    assert isinstance(answer(reader.ask(HOST, port, "a", lease.token)), ReadAnswer)
    second = reader.ask(HOST, port, "a", lease.token)
    assert answer(second) == Declined("taken")
    second.cancel()
    other = grant(book, "b")
    reader.release(HOST, port, "b", other.token)
    wait_for(lambda: [lease.id for lease in book.take_ended()] == ["b"])
    assert book.counts()["reading"] == 1


def test_a_reader_gives_back_or_finishes_with_its_own_token(
    book: LeaseBook, port: int, reader: LeaseReader
) -> None:
    tokens = []
    for name in ("a", "b"):
        found = answer(reader.ask(HOST, port, name, grant(book, name).token))
        assert isinstance(found, ReadAnswer)
        tokens.append(found.token)
    reader.release(HOST, port, "a", tokens[0])
    reader.finish(HOST, port, "b", tokens[1])
    wait_for(lambda: book.counters.ended["released"] == book.counters.ended["read"] == 1)


def test_an_unread_lease_is_given_back_with_the_handles_token(
    book: LeaseBook, port: int, reader: LeaseReader
) -> None:
    reader.release(HOST, port, "a", grant(book, "a").token)
    wait_for(lambda: book.counters.ended["released"] == 1)


def test_a_ticket_that_is_cancelled_after_its_answer_gives_the_lease_back_once(
    book: LeaseBook, port: int, reader: LeaseReader
) -> None:
    lease = grant(book, "a")
    ticket = reader.ask(HOST, port, "a", lease.token)
    assert isinstance(answer(ticket), ReadAnswer)
    ticket.cancel()
    ticket.cancel()
    assert ticket.done()
    assert ticket.result() == Declined("timeout")
    wait_for(lambda: book.counters.ended["released"] == 1)


def test_a_ticket_that_is_cancelled_before_its_answer_gives_the_lease_back_when_it_comes(
    book: LeaseBook, port: int, reader: LeaseReader
) -> None:
    lease = grant(book, "a")
    with book._changed:  # the listener cannot answer meanwhile
        ticket = reader.ask(HOST, port, "a", lease.token)
        assert not ticket.done()
        wait_for(lambda: bool(reader._used))
        ticket.cancel()
    wait_for(lambda: book.counters.ended["released"] == 1)
    assert ticket.result() == Declined("timeout")


def test_an_answer_after_the_deadline_gives_the_lease_back(book: LeaseBook, port: int) -> None:
    now = [0.0]
    reader = LeaseReader(clock=lambda: now[0], total_s=60)
    lease = grant(book, "a")
    with book._changed:
        ticket = reader.ask(HOST, port, "a", lease.token)
        wait_for(lambda: bool(reader._used))
        now[0] = 61.0
        assert ticket.done()
        assert ticket.result() == Declined("timeout")
        now[0] = 59.0  # the thread that asks has not seen the time pass
    wait_for(lambda: book.counters.ended["released"] == 1)
    reader.close()


def test_a_question_that_waited_for_a_thread_until_its_deadline_is_not_asked(
    book: LeaseBook, port: int
) -> None:
    now = [0.0]
    reader = LeaseReader(threads=1, clock=lambda: now[0], total_s=60)
    first, second, third = (grant(book, name) for name in "abc")
    with book._changed:
        asked = reader.ask(HOST, port, "a", first.token)
        wait_for(lambda: bool(reader._used))
        late = reader.ask(HOST, port, "b", second.token)
        cancelled = reader.ask(HOST, port, "c", third.token)
        cancelled.cancel()
        late.deadline = 0.0
        assert late.result() == Declined("timeout")
    assert isinstance(answer(asked), ReadAnswer)
    reader.close()
    assert book.counters.reads == 1


def test_more_questions_than_may_wait_are_declined_at_once(book: LeaseBook, port: int) -> None:
    reader = LeaseReader(threads=1, waiting=2)
    leases = [grant(book, f"lease-{number}") for number in range(5)]
    with book._changed:
        first = reader.ask(HOST, port, leases[0].id, leases[0].token)
        wait_for(lambda: bool(reader._used))
        tickets = [reader.ask(HOST, port, lease.id, lease.token) for lease in leases[1:]]
        assert [ticket.done() for ticket in tickets] == [False, False, True, True]
        assert tickets[-1].result() == Declined("busy")
    assert all(isinstance(answer(ticket), ReadAnswer) for ticket in (first, *tickets[:2]))
    reader.close()


def test_a_wait_ends_with_the_answer_or_with_its_time(
    book: LeaseBook, port: int, reader: LeaseReader
) -> None:
    lease = grant(book, "a")
    with book._changed:
        ticket = reader.ask(HOST, port, "a", lease.token)
        ticket.wait(0.001)
        assert not ticket.done()
    ticket.wait(BOUND_S)
    assert isinstance(ticket.result(), ReadAnswer)


def test_a_result_that_is_not_there_is_not_waited_for(book: LeaseBook, port: int) -> None:
    reader = LeaseReader()
    lease = grant(book, "a")
    with book._changed:
        ticket = reader.ask(HOST, port, "a", lease.token)
        with pytest.raises(RuntimeError):
            ticket.result()
    reader.close()


def test_one_connection_carries_one_question_after_another(
    book: LeaseBook, reader: LeaseReader
) -> None:
    listener = listener_of(book, Limits(connections=1))
    port = listener.start()
    for number in range(20):
        lease = grant(book, f"lease-{number}")
        assert isinstance(answer(reader.ask(HOST, port, lease.id, lease.token)), ReadAnswer)
    assert len(reader._idle._kept) == 1
    listener.stop()


def test_many_questions_at_once_are_all_answered(
    book: LeaseBook, port: int, reader: LeaseReader
) -> None:
    leases = [grant(book, f"lease-{number}") for number in range(60)]
    tickets = [reader.ask(HOST, port, lease.id, lease.token) for lease in leases]
    for ticket, lease in zip(tickets, leases, strict=True):
        found = answer(ticket)
        assert isinstance(found, ReadAnswer)
        assert found.peer.request_id == f"request-of-{lease.id}"
    assert len(reader._idle._kept) <= 2


def test_a_connection_that_d_ended_meanwhile_is_not_noticed(
    book: LeaseBook, reader: LeaseReader
) -> None:
    listener = listener_of(book, Limits(idle_s=0.01))
    port = listener.start()
    for number in range(3):
        lease = grant(book, f"lease-{number}")
        assert isinstance(answer(reader.ask(HOST, port, lease.id, lease.token)), ReadAnswer)
        wait_for(lambda: not listener._clients._waiting)
    listener.stop()


def test_a_d_that_is_gone_is_unreachable(book: LeaseBook, reader: LeaseReader) -> None:
    listener = listener_of(book)
    port = listener.start()
    lease = grant(book, "a")
    other = grant(book, "b")
    assert isinstance(answer(reader.ask(HOST, port, "a", lease.token)), ReadAnswer)
    listener.stop()
    assert answer(reader.ask(HOST, port, "b", other.token)) == Declined("unreachable")


def test_a_close_ends_the_threads_and_declines_what_has_no_answer(
    book: LeaseBook, port: int
) -> None:
    before = set(threading.enumerate())
    reader = LeaseReader(threads=1)
    lease, other = grant(book, "a"), grant(book, "b")
    with book._changed:
        asked = reader.ask(HOST, port, "a", lease.token)
        wait_for(lambda: bool(reader._used))
        waiting = reader.ask(HOST, port, "b", other.token)
        reader.close()
        assert {thread.name for thread in set(threading.enumerate()) - before} == set()
        assert asked.result() == Declined("unreachable")
        assert waiting.result() == Declined("unreachable")
    assert reader.ask(HOST, port, "b", other.token).result() == Declined("unreachable")
    reader.release(HOST, port, "b", other.token)
    reader.close()
