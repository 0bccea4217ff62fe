"""A peer that says nothing costs the questions to others nothing."""

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from disaggpair_bed.fakes.rawhttp import BLOCK_SIZE, BOUND_S, grant
from disaggpair_connector.book import LeaseBook
from disaggpair_connector.listener import LeaseListener
from disaggpair_connector.reader import LeaseReader
from disaggpair_connector.reader_questions import AT_A_TIME, Questions
from disaggpair_connector.reader_ticket import Question, Ticket
from disaggpair_connector.wire import Declined

HOST = "127.0.0.1"


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def questions(clock: Clock) -> Questions:
    return Questions(limit=8, silent_s=2.0, clock=clock)


def ticket(port: int) -> Ticket:
    return Ticket(Question(HOST, port, "a", "t"), 1e9, Clock(), lambda question: None)


def got(questions: Questions, count: int) -> list[int]:
    """The ports of the next questions."""
    found = [questions.get() for _ in range(count)]
    return [each.question.port for each in found if each is not None]


def test_a_peer_has_a_part_of_the_threads(questions: Questions) -> None:
    tickets = [ticket(1) for _ in range(AT_A_TIME + 1)]
    for each in [*tickets, ticket(2)]:
        assert questions.put(each) is None
    assert sorted(got(questions, AT_A_TIME + 1)) == [1] * AT_A_TIME + [2]
    questions.end(tickets[0])
    assert got(questions, 1) == [1]


def test_a_place_that_is_given_back_wakes_who_waits_for_it(questions: Questions) -> None:
    tickets = [ticket(1) for _ in range(AT_A_TIME + 1)]
    for each in tickets:
        questions.put(each)
    got(questions, AT_A_TIME)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(questions.get()))
    thread.start()
    questions.end(tickets[0])
    thread.join(BOUND_S)
    assert found == [tickets[-1]]


def test_peers_take_turns(questions: Questions) -> None:
    for port in (1, 1, 2, 2):
        questions.put(ticket(port))
    assert got(questions, 4) == [1, 2, 1, 2]


def test_a_silent_peer_is_not_asked_for_a_while(questions: Questions, clock: Clock) -> None:
    waiting = [ticket(1), ticket(1)]
    for each in [*waiting, ticket(2)]:
        questions.put(each)
    assert questions.fell_silent((HOST, 1)) == waiting
    assert questions.put(ticket(1)) == "unreachable"
    assert questions.is_silent((HOST, 1))
    assert got(questions, 1) == [2]
    clock.now += 2.0
    assert not questions.is_silent((HOST, 1))
    assert questions.put(ticket(1)) is None
    assert questions.fell_silent((HOST, 2)) == []
    assert questions.put(ticket(1)) is None


def test_what_was_declined_for_silence_leaves_room(questions: Questions) -> None:
    for _ in range(8):
        questions.put(ticket(1))
    assert questions.put(ticket(2)) == "busy"
    questions.fell_silent((HOST, 1))
    assert questions.put(ticket(2)) is None


def test_nothing_is_asked_after_the_close(questions: Questions) -> None:
    left = ticket(1)
    questions.put(left)
    assert questions.close() == [left]
    assert questions.get() is None
    assert questions.put(ticket(1)) == "unreachable"


# Over sockets. A listening socket whose queue is never emptied takes connections and says nothing.


@pytest.fixture
def mute() -> Iterator[int]:
    with socket.create_server((HOST, 0), backlog=64) as server:
        yield int(server.getsockname()[1])


@pytest.fixture
def listening() -> Iterator[tuple[LeaseBook, int]]:
    book = LeaseBook(epoch="e1", ttl_s=100, claim_s=10, read_s=20)
    listener = LeaseListener(book, host=HOST, port=0, key=None, block_size=BLOCK_SIZE, read_s=20)
    yield book, listener.start()
    listener.stop()


def wait_for(done: Callable[[], bool]) -> None:
    end = threading.Event()
    for _ in range(int(BOUND_S * 1000)):
        if done():
            return
        end.wait(0.001)
    raise AssertionError("it did not come")


def test_questions_to_others_are_answered_while_a_peer_is_silent(
    mute: int, listening: tuple[LeaseBook, int]
) -> None:
    book, port = listening
    reader = LeaseReader(total_s=BOUND_S, connect_s=BOUND_S)
    for _ in range(20):
        reader.ask(HOST, mute, "a", "t")
    answered = reader.ask(HOST, port, "a", grant(book, "a").token)
    wait_for(answered.done)
    assert not isinstance(answered.result(), Declined)
    reader.close()


def test_the_first_question_without_an_answer_declines_those_behind_it(mute: int) -> None:
    reader = LeaseReader(threads=1, total_s=0.1, connect_s=0.05, silent_s=BOUND_S)
    first = reader.ask(HOST, mute, "a", "t")
    wait_for(first.done)
    assert first.result() == Declined("timeout")
    wait_for(lambda: reader.ask(HOST, mute, "a", "t").done())
    assert reader.ask(HOST, mute, "a", "t").result() == Declined("unreachable")
    reader.close()


def test_what_a_silent_peer_would_be_told_does_not_hold_up_others(
    mute: int, listening: tuple[LeaseBook, int]
) -> None:
    book, port = listening
    reader = LeaseReader(total_s=0.1, connect_s=0.05, silent_s=10 * BOUND_S)
    for _ in range(4000):
        reader.release(HOST, mute, "a", "t")
    grant(book, "a")
    reader.release(HOST, port, "a", book.claim("a", "read").token)
    wait_for(lambda: book.counters.ended["released"] == 1)
    reader.close()
