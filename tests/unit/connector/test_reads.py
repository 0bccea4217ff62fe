"""A read from the question to its end, with an owner of leases that answers when it is told to."""

import logging
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from disaggpair_connector.digest import Digests, digests_of
from disaggpair_connector.handle import LeaseHandle, Peer
from disaggpair_connector.reads import IDLE_WAIT_S, Read, Reads
from disaggpair_connector.tally import Tally
from disaggpair_connector.wire import Declined, DeclineReason, ReadAnswer

HANDLE = LeaseHandle("10.0.0.9", 5700, "l1", "first", is_release=False)
PEER = Peer("engine", "request", "10.0.0.9", 5600, {"tp_size": 1})
ANSWER = ReadAnswer(
    peer=PEER,
    digests=digests_of(range(600), 600, b""),
    block_ids=(tuple(range(100, 138)),),
    block_size=16,
    divisible=True,
    deadline_s=20.0,
    token="readers",
)
AS_READER = ("10.0.0.9", 5700, "l1", "readers")


@dataclass
class Question:
    answer: ReadAnswer | Declined | None = None
    is_cancelled: bool = False
    answers_if_awaited: ReadAnswer | None = None
    waited_s: list[float] = field(default_factory=list)

    def wait(self, seconds: float) -> None:
        self.waited_s.append(seconds)
        self.answer = self.answers_if_awaited

    def done(self) -> bool:
        return self.answer is not None

    def result(self) -> ReadAnswer | Declined:
        assert self.answer is not None
        return self.answer

    def cancel(self) -> None:
        self.is_cancelled = True


@dataclass
class Owner:
    """What is asked of it and told to it; asking takes a second."""

    clock: "Clock"
    asked: list[Question] = field(default_factory=list)
    released: list[tuple[str, int, str, str]] = field(default_factory=list)
    finished: list[tuple[str, int, str, str]] = field(default_factory=list)

    def ask(self, host: str, port: int, lease: str, token: str) -> Question:
        assert (host, port, lease, token) == ("10.0.0.9", 5700, "l1", "first")
        self.clock.now += 1
        self.asked.append(Question())
        return self.asked[-1]

    def release(self, *where: Any) -> None:
        self.released.append(where)

    def finish(self, *where: Any) -> None:
        self.finished.append(where)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Engine:
    """One engine's reads, of which what is proven to be held is said by the test."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.owner = Owner(self.clock)
        self.tally = Tally()
        self.proven = 600
        self.told: list[Read] = []
        self.reads = Reads(
            self.owner,
            self.tally,
            self.held_by,
            block_size=16,
            divisible=True,
            clock=self.clock,
            begin_by=lambda read: read.kept_until - 1,
            end_by=lambda read: read.kept_until,
            log=logging.getLogger("test"),
            answered=self.told.append,
        )

    def held_by(self, request: Any, held: Digests) -> int:
        assert held == ANSWER.digests
        return self.proven

    def ask(self, name: str = "r", prompt_tokens: int = 700) -> Any:
        request = SimpleNamespace(request_id=name, num_prompt_tokens=prompt_tokens)
        self.reads.arrived(request)
        self.reads.ask(request, HANDLE)
        return request

    def answered(self, name: str = "r", answer: ReadAnswer | Declined = ANSWER) -> Any:
        request = self.ask(name)
        self.owner.asked[-1].answer = answer
        return request

    def begun(self, name: str = "r") -> Any:
        request = self.answered(name)
        assert self.reads.tokens(request, 0, 1) == (600, True)
        assert self.reads.begin(request, 600) is not None
        return request

    def refused(self) -> dict[str, float]:
        """Refusals by reason since the last call."""
        counts = self.tally.take()
        return {key.partition("|")[2]: sum(counts[key]) for key in counts if "refused" in key}


@pytest.fixture
def engine() -> Engine:
    return Engine()


def ended(*names: str, failed: tuple[str, ...] = ()) -> Any:
    return SimpleNamespace(finished_recving=set(names), failed_recving=set(failed))


def test_a_request_waits_until_the_owner_has_answered(engine: Engine) -> None:
    request = engine.ask()
    assert engine.reads.tokens(request, 0, 64) == (None, False)
    engine.owner.asked[0].answer = ANSWER
    assert engine.reads.tokens(request, 0, 64) == (600, True)
    assert engine.reads.tokens(request, 512, 64) == (88, True)


def test_an_engine_with_nothing_else_to_do_waits_for_an_answer(engine: Engine) -> None:
    request = engine.ask()
    engine.owner.asked[0].answers_if_awaited = ANSWER
    assert engine.reads.tokens(request, 0, 64) == (600, True)


def test_an_engine_waits_once_in_a_step(engine: Engine) -> None:
    requests = [engine.ask("a"), engine.ask("b")]
    for _ in range(2):
        for request in requests:
            assert engine.reads.tokens(request, 0, 64) == (None, False)
        engine.reads.poll()
    assert [question.waited_s for question in engine.owner.asked] == [[IDLE_WAIT_S] * 2, []]


def test_an_engine_that_has_other_requests_does_not_wait(engine: Engine) -> None:
    busy = SimpleNamespace(request_id="busy", num_prompt_tokens=700)
    engine.reads.arrived(busy)
    request = engine.ask()
    assert engine.reads.tokens(request, 0, 64) == (None, False)
    assert engine.owner.asked[0].waited_s == []
    engine.reads.forget(busy)
    engine.reads.tokens(request, 0, 64)
    assert engine.owner.asked[0].waited_s == [IDLE_WAIT_S]


def test_an_engine_does_not_wait_beside_a_request_that_has_its_answer(engine: Engine) -> None:
    engine.begun("reads")
    engine.reads.tokens(engine.ask("asks"), 0, 64)
    assert engine.owner.asked[1].waited_s == []


def test_a_request_that_asked_nothing_reads_nothing(engine: Engine) -> None:
    request = SimpleNamespace(request_id="other", num_prompt_tokens=700)
    engine.ask()
    assert engine.reads.tokens(request, 0, 64) == (0, False)
    assert engine.reads.begin(request, 0) is None
    assert not engine.reads.forget(request)


def test_a_read_names_the_blocks_of_the_answer(engine: Engine) -> None:
    request = engine.answered()
    engine.reads.tokens(request, 0, 64)
    plan = engine.reads.begin(request, 600)
    assert plan is not None
    assert (plan.peer, plan.tokens, plan.block_ids) == (PEER, 600, [list(range(100, 138))])
    assert engine.tally.take() == {"disaggpair:verified_tokens": [600]}


def test_of_other_tokens_the_common_blocks_are_read(engine: Engine) -> None:
    engine.proven = 512
    request = engine.answered()
    assert engine.reads.tokens(request, 0, 64) == (512, True)
    plan = engine.reads.begin(request, 512)
    assert plan is not None
    assert plan.block_ids == [list(range(100, 132))]


def test_of_a_lease_longer_than_the_prompt_the_prompt_is_read(engine: Engine) -> None:
    request = engine.ask(prompt_tokens=590)
    engine.owner.asked[0].answer = ANSWER
    assert engine.reads.tokens(request, 0, 64) == (590, True)


def test_tokens_that_are_not_held_give_the_lease_back(engine: Engine) -> None:
    engine.proven = 0
    request = engine.answered()
    assert engine.reads.tokens(request, 0, 64) == (0, False)
    assert engine.owner.released == [AS_READER]
    assert engine.refused() == {"tokens": 1}
    assert engine.told == []
    assert engine.reads.tokens(request, 0, 64) == (0, False)


@pytest.mark.parametrize(("computed", "least"), [(600, 1), (650, 1), (537, 64), (0, 601)], ids=str)
def test_less_than_is_worth_a_read_gives_the_lease_back(
    engine: Engine, computed: int, least: int
) -> None:
    request = engine.answered()
    assert engine.reads.tokens(request, computed, least) == (0, False)
    assert engine.owner.released == [AS_READER]
    assert engine.refused() == {"short": 1}


def test_too_late_to_begin_gives_the_lease_back(engine: Engine) -> None:
    request = engine.answered()
    engine.clock.now = 119.0  # asked at 100, kept until 120
    assert engine.reads.tokens(request, 0, 64) == (600, True)
    engine.clock.now = 119.1
    assert engine.reads.tokens(request, 0, 64) == (0, False)
    assert engine.owner.released == [AS_READER]
    assert engine.refused() == {"late": 1}


def test_a_request_of_which_all_is_computed_after_all_gives_the_lease_back(engine: Engine) -> None:
    request = engine.answered()
    engine.reads.tokens(request, 0, 64)
    assert engine.reads.begin(request, 0) is None
    assert engine.owner.released == [AS_READER]
    assert engine.refused() == {"short": 1}


def test_a_request_without_an_answer_begins_nothing(engine: Engine) -> None:
    assert engine.reads.begin(engine.ask(), 0) is None
    assert engine.owner.released == []


@pytest.mark.parametrize("reason", ["unknown", "taken", "token", "busy", "malformed", "timeout"])
def test_a_refusal_is_counted_by_its_reason_and_ends_nothing(
    engine: Engine, reason: DeclineReason
) -> None:
    request = engine.answered(answer=Declined(reason))
    assert engine.reads.tokens(request, 0, 64) == (0, False)
    assert engine.refused() == {reason: 1}
    assert engine.owner.released == []
    assert not engine.reads.forget(request)


def test_what_was_read_is_not_promised_again(engine: Engine) -> None:
    request = engine.begun()
    assert engine.reads.tokens(request, 0, 64) == (0, False)
    assert engine.reads.begin(request, 600) is None
    engine.reads.ended(ended("r"))
    assert engine.reads.tokens(request, 0, 64) == (0, False)


def test_the_owner_hears_once_of_a_read_that_went_well(engine: Engine) -> None:
    engine.begun()
    engine.reads.ended(ended("r", "another's"))
    engine.reads.ended(ended("r"))
    assert engine.owner.finished == [AS_READER]
    assert engine.owner.released == []
    assert engine.refused() == {}


def test_a_read_that_failed_is_given_back(engine: Engine) -> None:
    engine.begun()
    engine.reads.ended(ended("r", failed=("r",)))
    assert (engine.owner.finished, engine.owner.released) == ([], [AS_READER])
    assert engine.refused() == {"failed": 1}


def test_a_report_without_reads_ends_none(engine: Engine) -> None:
    engine.begun()
    engine.reads.ended(SimpleNamespace(finished_recving=None))
    assert engine.owner.finished == []
    # A release of vLLM that does not say which failed.
    engine.reads.ended(SimpleNamespace(finished_recving={"r"}))
    assert engine.owner.finished == [AS_READER]


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_request_that_ends_before_its_read_takes_its_question_back(
    engine: Engine, is_answered: bool
) -> None:
    request = engine.answered() if is_answered else engine.ask()
    if is_answered:
        engine.reads.tokens(request, 0, 64)
    assert engine.reads.forget(request)
    assert engine.owner.asked[0].is_cancelled
    assert not engine.reads.forget(request)
    assert engine.reads.tokens(request, 0, 64) == (0, False)


def test_a_request_that_ends_during_its_read_is_still_answered_for(engine: Engine) -> None:
    request = engine.begun()
    assert not engine.reads.forget(request)
    assert not engine.owner.asked[0].is_cancelled
    engine.reads.ended(ended("r"))
    assert engine.owner.finished == [AS_READER]


def test_a_handle_that_gives_up_asks_nothing(engine: Engine) -> None:
    request = SimpleNamespace(request_id="r", num_prompt_tokens=1)
    handle = LeaseHandle("10.0.0.9", 5700, "l1", "first", is_release=True)
    engine.reads.ask(request, handle)
    assert engine.owner.released == [("10.0.0.9", 5700, "l1", "first")]
    assert engine.owner.asked == []
    assert engine.reads.tokens(request, 0, 64) == (0, False)


def test_seconds_that_a_read_may_take_are_told_once_and_count_from_the_question(
    engine: Engine,
) -> None:
    engine.begun("a")
    engine.clock.now = 105.0
    assert engine.reads.take_deadlines() == {"a": 15.0}
    assert engine.reads.take_deadlines() == {}


def test_answers_are_taken_in_without_being_asked_for(engine: Engine) -> None:
    waiting = engine.ask("a")
    engine.answered("b")
    engine.answered("c", Declined("unknown"))
    engine.clock.now = 110.0
    engine.reads.poll()
    (told,) = engine.told
    assert (told.request.request_id, told.answered) == ("b", 110.0)
    assert engine.refused() == {"unknown": 1}
    engine.reads.poll()
    assert len(engine.told) == 1
    assert engine.reads.tokens(waiting, 0, 64) == (None, False)


def test_the_later_half_of_what_waits_for_blocks_is_given_back(engine: Engine) -> None:
    engine.begun("begun")
    names = ["a", "b", "c"]
    requests = [engine.answered(name) for name in names]
    engine.ask("unanswered")
    engine.reads.poll()
    engine.reads.give_back_half()
    assert engine.owner.released == [AS_READER] * 2
    assert engine.refused() == {"late": 2}
    assert [engine.reads.tokens(request, 0, 64)[0] for request in requests] == [600, 0, 0]
    engine.reads.give_back_half()
    assert engine.owner.released == [AS_READER] * 3
    engine.reads.give_back_half()
    assert engine.owner.released == [AS_READER] * 3


def test_nobody_has_to_listen_to_answers() -> None:
    engine = Engine()
    engine.reads._answered = None
    request = engine.answered()
    assert engine.reads.tokens(request, 0, 64) == (600, True)


def test_an_owner_that_falls_silent_is_named_once_and_once_when_it_is_back(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    answers: list[ReadAnswer | Declined] = [
        Declined("taken"),
        Declined("unreachable"),
        Declined("timeout"),
        Declined("taken"),
        ANSWER,
        Declined("timeout"),
    ]
    for number, answer in enumerate(answers):
        engine.reads.tokens(engine.answered(str(number), answer), 0, 64)
    assert caplog.messages == [
        "Leases at 10.0.0.9:5700 cannot be asked for; computing instead.",
        "Leases at 10.0.0.9:5700 can be asked for again.",
        "Leases at 10.0.0.9:5700 cannot be asked for; computing instead.",
    ]
    assert "first" not in caplog.text


def test_of_very_many_silent_owners_some_are_named(
    engine: Engine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*where: Any) -> Question:
        return Question(Declined("unreachable"))

    monkeypatch.setattr(engine.owner, "ask", silent)
    for number in range(100):
        request = SimpleNamespace(request_id=str(number), num_prompt_tokens=1)
        engine.reads.ask(request, LeaseHandle("h", number, "l", "t", is_release=False))
    engine.reads.poll()
    assert len(caplog.messages) == 64


def test_why_something_is_computed_is_said_without_the_token(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    engine.proven = 0
    engine.reads.tokens(engine.answered(), 0, 64)
    assert caplog.messages == ["Computing all of r: tokens"]


def test_before_an_answer_nothing_is_known_to_be_kept() -> None:
    assert Read(None, HANDLE, Question(), asked=100.0).kept_until == 100.0
