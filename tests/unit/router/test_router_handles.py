"""What the table, the clock and the engines' state make of a handle together."""

from dataclasses import dataclass, field

import orjson

from disaggpair_bed.fakes.upstream import decode_handle
from disaggpair_router.answer import Answer
from disaggpair_router.config import KVTransfer
from disaggpair_router.conversation import Keys
from disaggpair_router.endpoints import Endpoints
from disaggpair_router.handles import Handles
from disaggpair_router.metrics import Metrics
from disaggpair_router.pick import Endpoint
from disaggpair_router.request import RequestReader, TurnRequest
from disaggpair_router.session import Claim, Conversations, Entry

P = Endpoint("p", "http://p", "prefill", ready=True)
D = Endpoint("d", "http://d", "decode", ready=True)
READER = RequestReader((), keys=Keys(b"s"), bidirectional=True)


@dataclass
class Releases:
    """Collects what would be released."""

    entries: list[Entry] = field(default_factory=list)

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)


class Bench:
    def __init__(self) -> None:
        self.now = 0.0
        self.table = Conversations(max_entries=9, max_bytes=10**6, memory_s=100)
        self.releases = Releases()
        endpoints = Endpoints(
            revision="",
            single_engine=True,
            metrics=Metrics(),
            clock=lambda: self.now,
        )
        endpoints.replace_all([P, D])
        self.handles = Handles(
            self.table,
            config=KVTransfer(handle_in_stream=True),
            endpoints=endpoints,
            releases=self.releases,  # type: ignore[arg-type]  # a stand-in
            clock=lambda: self.now,
        )

    def keep(self, request: TurnRequest) -> None:
        self.handles.keep(request, D, decode_handle(), Answer("yes"), None)


def turn(*texts: str) -> TurnRequest:
    roles = ("user", "assistant")
    messages = [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]
    body = orjson.dumps({"messages": messages, "conversation_id": "c"})
    return READER.read("chat", body, {}, "r")


def test_a_kept_handle_is_claimed_within_its_time() -> None:
    bench = Bench()
    bench.keep(turn("a"))
    bench.now = 449.0
    assert isinstance(bench.handles.claim(turn("a", "yes", "b"), P), Claim)


def test_time_drops_handles_and_pauses() -> None:
    bench = Bench()
    bench.keep(turn("a"))
    claim = bench.handles.claim(turn("a", "yes", "b"), P)
    assert isinstance(claim, Claim)
    bench.handles.pause(claim, P)
    bench.keep(turn("a"))
    assert bench.handles.claim(turn("a", "yes", "b"), P) == "paused"
    bench.now = 450.0
    bench.handles.expire()
    assert bench.table.handles == 0
    assert bench.handles.claim(turn("a", "yes", "b"), P) == "expired"


def test_an_unsent_handle_that_was_replaced_is_released() -> None:
    bench = Bench()
    bench.keep(turn("a"))
    claim = bench.handles.claim(turn("a", "yes", "b"), P)
    assert isinstance(claim, Claim)
    bench.keep(turn("a", "yes", "c"))
    bench.handles.restore(claim)
    assert bench.releases.entries == [claim.entry]


def test_an_overwritten_handle_is_released() -> None:
    bench = Bench()
    bench.keep(turn("a"))
    bench.keep(turn("a"))
    assert len(bench.releases.entries) == 1
    assert bench.table.handles == 1


def test_a_holder_that_restarted_is_not_preferred() -> None:
    bench = Bench()
    bench.keep(turn("a"))
    assert bench.handles.holder(turn("a", "yes", "b")) == "d"
    gone = Endpoint("d", "http://d", "decode", ready=True, incarnation="2")
    bench.handles._endpoints.put(gone)
    assert bench.handles.holder(turn("a", "yes", "b")) == ""
    assert bench.handles.claim(turn("a", "yes", "b"), P) == "other_engine"
