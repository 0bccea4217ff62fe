"""The table behind a lock: one of many threads wins, and waiters are woken."""

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from disaggpair_connector.book import LeaseBook
from disaggpair_connector.digest import Digests
from disaggpair_connector.events import Gone
from disaggpair_connector.lease import Lease, LeaseError

LONG_S = 60.0

Waiter = Future[bool]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0
        self.asked = threading.Event()

    def __call__(self) -> float:
        self.asked.set()
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def book(clock: Clock) -> LeaseBook:
    return LeaseBook(
        epoch="e",
        ttl_s=100,
        claim_s=10,
        read_s=20,
        kept_events=1000,
        clock=clock,
        wall_clock=lambda: 5000.0,
    )


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def grant(book: LeaseBook, name: str = "a") -> Lease:
    return book.grant(
        id=name,
        conversation="c",
        tokens=0,
        block_ids=[[1, 2]],
        digests=Digests(0, b"", b""),
        handle={},
        divisible=True,
        pinned=name,
    )


def code(act: Callable[[], object]) -> str | None:
    try:
        act()
    except LeaseError as error:
        return error.code
    return None


def waiting(threads: ThreadPoolExecutor, book: LeaseBook, clock: Clock, since: int) -> Waiter:
    """A waiter that does wait: it has looked at the clock, and let go of the lock after that."""
    clock.asked.clear()
    waiter = threads.submit(book.wait, since, LONG_S)
    assert clock.asked.wait(LONG_S)
    book.counts()
    return waiter


def test_a_lease_lives_through_the_book_as_through_the_table(book: LeaseBook) -> None:
    first = grant(book)
    assert book.epoch == "e"
    assert book.granted_blocks == 2
    claimed = book.claim("a", "read")
    assert code(lambda: book.read("a", first.token)) == "token"
    assert book.read("a", claimed.token).state == "reading"
    assert book.counts() == {"granted": 0, "claimed": 0, "reading": 1}
    assert book.finish("a", "read")
    assert [lease.pinned for lease in book.take_ended()] == ["a"]
    grant(book, "b")
    assert book.redeem_direct("b", book.claim("b", "direct").token).state == "claimed"
    book.release("b")
    grant(book, "c")
    assert (found := book.reclaim()) is not None
    assert found.id == "c"
    grant(book, "d")
    book.reset()
    assert [lease.id for lease in book.take_ended()] == ["b", "d"]
    assert book.counters.ended["reset"] == 1


def test_tokens_are_long_and_differ(book: LeaseBook) -> None:
    tokens = {grant(book, f"l{number}").token for number in range(100)}
    assert len(tokens) == 100
    assert min(map(len, tokens)) >= 43


def test_times_are_shown_by_the_wall_clock_of_the_start(book: LeaseBook, clock: Clock) -> None:
    clock.now += 7
    grant(book)
    listing = json.loads(book.listing())
    assert listing["now"] == 5007.0
    assert listing["leases"][0]["created"] == 5007.0
    assert listing["leases"][0]["expires"] == 5107.0


def test_a_lease_that_was_handed_out_does_not_change_with_the_tables(book: LeaseBook) -> None:
    granted = grant(book)
    token = granted.token
    claimed = book.claim("a", "read")
    book.read("a", claimed.token)
    assert (granted.state, granted.token) == ("granted", token)
    assert claimed.state == "claimed"


def test_events_come_as_lines_with_the_number_to_ask_with_next(book: LeaseBook) -> None:
    grant(book, "a")
    grant(book, "b")
    lines, following = book.events(0)
    assert [json.loads(line)["lease"]["id"] for line in lines] == ["a", "b"]
    assert following == book.sequence == 2
    assert book.events(following) == ([], 2)


def test_events_of_another_book_are_gone(book: LeaseBook) -> None:
    with pytest.raises(Gone):
        book.events(3)
    assert book.wait(3, LONG_S)


def test_of_many_claims_at_once_one_wins(book: LeaseBook, threads: ThreadPoolExecutor) -> None:
    for number in range(50):
        name = grant(book, f"l{number}").id
        start = threading.Barrier(8)

        def claim(name: str = name, start: threading.Barrier = start) -> str | None:
            start.wait(LONG_S)
            return code(lambda: book.claim(name, "read"))

        codes = [future.result(LONG_S) for future in [threads.submit(claim) for _ in range(8)]]
        assert sorted(map(str, codes)) == ["None"] + ["taken"] * 7
    assert (book.counters.claims_won, book.counters.claims_lost) == (50, 350)


def test_a_reclaim_and_a_read_at_once_never_both_get_the_lease(
    book: LeaseBook, threads: ThreadPoolExecutor
) -> None:
    for number in range(100):
        lease = grant(book, f"l{number}")
        start = threading.Barrier(2)

        def read(lease: Lease = lease, start: threading.Barrier = start) -> str | None:
            start.wait(LONG_S)
            return code(lambda: book.read(lease.id, lease.token))

        reading = threads.submit(read)
        start.wait(LONG_S)
        reclaimed = book.reclaim()
        assert reading.result(LONG_S) == (None if reclaimed is None else "unknown")
        if reclaimed is None:
            assert book.finish(lease.id, "read")


def test_a_waiter_is_woken_by_a_change(
    book: LeaseBook, clock: Clock, threads: ThreadPoolExecutor
) -> None:
    waiter = waiting(threads, book, clock, since=0)
    assert not waiter.done()
    grant(book)
    assert waiter.result(LONG_S)


def test_all_waiters_are_woken_by_one_change(
    book: LeaseBook, clock: Clock, threads: ThreadPoolExecutor
) -> None:
    waiters = [waiting(threads, book, clock, since=0) for _ in range(5)]
    grant(book)
    assert all(waiter.result(LONG_S) for waiter in waiters)


def test_what_is_due_wakes_waiters_even_when_the_call_that_met_it_is_refused(
    book: LeaseBook, clock: Clock, threads: ThreadPoolExecutor
) -> None:
    grant(book)
    waiter = waiting(threads, book, clock, since=1)
    clock.now += 100
    assert code(lambda: book.claim("a", "read")) == "unknown"
    assert waiter.result(LONG_S)


def test_a_waiter_lets_leases_expire_that_nobody_asks_for() -> None:
    book = LeaseBook(epoch="e", ttl_s=0.02, claim_s=1, read_s=1)
    grant(book)
    assert book.wait(1, LONG_S)
    assert json.loads(book.events(1)[0][0])["reason"] == "expired"


def test_a_waiter_who_comes_late_does_not_wait(book: LeaseBook) -> None:
    grant(book)
    assert book.wait(0, LONG_S)


def test_a_wait_ends_when_its_time_is_up(book: LeaseBook) -> None:
    grant(book)
    assert not book.wait(1, 0.01)
    assert not book.wait(1, 0)


def test_closing_wakes_all_waiters_for_good(
    book: LeaseBook, clock: Clock, threads: ThreadPoolExecutor
) -> None:
    waiters = [waiting(threads, book, clock, since=0) for _ in range(3)]
    assert not book.closed
    book.close()
    assert book.closed
    assert [waiter.result(LONG_S) for waiter in waiters] == [False] * 3
    assert not book.wait(0, LONG_S)
    grant(book)
    assert book.wait(0, LONG_S)


def test_listings_and_events_agree_while_threads_change_leases(
    book: LeaseBook, threads: ThreadPoolExecutor
) -> None:
    numbers = itertools.count()

    def work() -> None:
        for _ in range(60):
            lease = grant(book, f"l{next(numbers)}")
            code(lambda lease=lease: book.claim(lease.id, "read"))  # type: ignore[misc]  # mypy infers no lambda with a default
            if lease.serial % 3 == 0:
                book.reclaim()
            if lease.serial % 2:
                code(lambda lease=lease: book.release(lease.id))  # type: ignore[misc]  # mypy infers no lambda with a default

    workers = [threads.submit(work) for _ in range(4)]
    listing = json.loads(book.listing())
    leases = {lease["id"]: lease for lease in listing["leases"]}
    following = listing["sequence"]
    while not all(worker.done() for worker in workers) or book.sequence != following:
        book.wait(following, 0.05)
        lines, following = book.events(following)
        for event in map(json.loads, lines):
            if event["type"] == "ended":
                del leases[event["lease"]["id"]]
            else:
                leases[event["lease"]["id"]] = event["lease"]
    for worker in workers:
        worker.result(LONG_S)
    listed = json.loads(book.listing())["leases"]
    assert {lease["id"]: lease for lease in listed} == leases
    assert len(leases) + len(book.take_ended()) + book.counters.ended["reclaimed"] == 240


def test_what_is_being_read_is_waited_for(
    book: LeaseBook, clock: Clock, threads: ThreadPoolExecutor
) -> None:
    first, second = grant(book, "a"), grant(book, "b")
    grant(book, "c")
    readers = [book.read(lease.id, lease.token).token for lease in (first, second)]
    waiter = threads.submit(book.wait_for_reads)
    book.finish_read("a", readers[0])
    assert [lease.id for lease in book.being_read()] == ["b"]
    assert not waiter.done()
    book.finish_read("b", readers[1])
    waiter.result(LONG_S)
    assert book.counts() == {"granted": 1, "claimed": 0, "reading": 0}


def test_a_reader_is_waited_for_until_its_deadline(
    book: LeaseBook, clock: Clock, threads: ThreadPoolExecutor
) -> None:
    lease = grant(book)
    book.read(lease.id, lease.token)
    waiter = threads.submit(book.wait_for_reads)
    clock.now += 100
    book.sweep()
    waiter.result(LONG_S)
    assert book.counters.ended["overdue"] == 1


def test_nobody_waits_for_readers_longer_than_they_have(clock: Clock) -> None:
    book = LeaseBook(epoch="e", ttl_s=9, claim_s=9, read_s=-1.9, grace_s=1.0, clock=clock)
    lease = grant(book)
    book.read(lease.id, lease.token)
    clock.now -= 1000
    book.wait_for_reads()
    assert book.being_read()


def test_a_book_that_closes_waits_for_nobody(book: LeaseBook) -> None:
    lease = grant(book)
    book.read(lease.id, lease.token)
    book.close()
    book.wait_for_reads()
    assert book.being_read()
