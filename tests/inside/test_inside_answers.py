"""Answers of a peer's listener that no listener of ours gives: none ends an engine."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from disaggpair_connector import wire
from disaggpair_connector.book import LeaseBook
from disaggpair_connector.lease import LeaseError
from disaggpair_connector.wire import Declined, ReadAnswer
from toypair import network
from toypair.clock import CLOCK
from toypair.engine import Shape, ToyEngine
from toypair.model import answer
from toypair.pair import FIRST, Pair, a_pair
from toypair.scenes import MORE, PROMPT, cold, ends_rightly
from toypair.transport import FABRIC

Change = Callable[[dict[str, Any]], None]


def says(monkeypatch: pytest.MonkeyPatch, change: Change) -> None:
    """Let every listener's answers be changed on their way."""

    def read(self: network.ToyListener, lease: str, token: str) -> ReadAnswer | Declined:
        book: LeaseBook = self.book
        try:
            found = book.read(lease, token)
        except LeaseError as error:
            return Declined(error.code)
        said = json.loads(wire.encode_read(found, block_size=4, deadline_s=10))
        change(said)
        try:
            return wire.decode_read(json.dumps(said).encode())
        except wire.Malformed:
            return Declined("malformed")

    monkeypatch.setattr(network.ToyListener, "read", read)


def end_of(engine: ToyEngine, name: str) -> None:
    """Step until a request has ended, and wait for handshakes meanwhile."""
    for _ in range(60):
        if engine.outcomes[name].reason is not None:
            return
        engine.step()
        engine.settle_handshakes()
    raise AssertionError(engine.status())


def peer(**values: Any) -> Change:
    return lambda said: said["peer"].update(values)


def blocks(make: Callable[[list[int]], Any], *, divisible: bool = True) -> Change:
    def change(said: dict[str, Any]) -> None:
        said["block_ids"] = make(said["block_ids"][0])
        said["divisible"] = divisible

    return change


LIES: dict[str, Change] = {
    "two groups": blocks(lambda ids: [ids, ids]),
    "few blocks": blocks(lambda ids: [ids[:1]], divisible=False),
    "more blocks": blocks(lambda ids: [[*ids, 0]]),
    "no such block": blocks(lambda ids: [[2**31 - 1] * len(ids)]),
    "a name that is no text": peer(remote_request_id="\ud800"),
    "an engine that is no text": peer(remote_engine_id="\ud800"),
    "a name with a comma": peer(remote_request_id="one,two"),
    "another engine": peer(remote_engine_id="another"),
    "another port": peer(remote_port=1, remote_engine_id="another"),
    "another host": peer(remote_host="no host", remote_engine_id="another"),
    "many ranks": peer(tp_size=5000, remote_engine_id="another"),
    "many ranks of a known engine": peer(tp_size=5000),
    "many stages": peer(pp_size=5000, remote_engine_id="another"),
    "many contexts": peer(dcp_size=5000, remote_engine_id="another"),
}


@pytest.mark.parametrize("role", ["p", "d"])
@pytest.mark.parametrize("lie", LIES)
def test_no_answer_ends_an_engine_or_parks_a_request(
    lie: str, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_pair() as pair:
        held, handle = cold(pair)
        says(monkeypatch, LIES[lie])
        prompt = held + MORE
        if role == "p":
            name = pair.p.add(prompt, handle)
            end_of(pair.p, name)
            assert pair.p.outcomes[name].tokens == answer(prompt, 1)
        else:
            offer = pair.prefill(prompt).params
            name = pair.d.add(prompt, offer, tokens=4)
            end_of(pair.d, name)
            assert pair.d.outcomes[name].tokens == answer(prompt, 4)


def test_an_answer_of_fewer_groups_ends_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = Shape(window=8)
    with a_pair(shape, shape) as pair:
        held, handle = cold(pair)
        says(monkeypatch, lambda said: said.update(block_ids=said["block_ids"][:1]))
        name = pair.p.add(held + MORE, handle)
        end_of(pair.p, name)
        assert pair.p.outcomes[name].tokens == answer(held + MORE, 1)


def test_of_two_engines_with_one_id_only_the_one_that_was_met_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with a_pair() as pair:
        held, handle = cold(pair)
        other = ToyEngine("decode", Shape())
        other.run(other.add([7] * 60, None))
        engine_id, port = other.half.engine_id, other.port
        Pair.meet(pair.p, other)
        before = len(FABRIC.done)
        says(monkeypatch, peer(remote_engine_id=engine_id))
        name = pair.p.add(held + MORE, handle)
        ends_rightly(pair.p, name, held + MORE)
        assert len(FABRIC.done) == before
        assert port != pair.d.port
        other.close()


def test_a_request_that_heartbeats_cannot_name_is_not_read_after_ps_time() -> None:
    """An id is in part its client's: with a comma in it, no heartbeat renews its blocks."""
    with a_pair(Shape(blocks=20), Shape(seqs=1)) as pair:
        offer = pair.prefill(PROMPT, name="cmpl-one,two").params
        first = pair.d.add([1], None, tokens=100)
        name = pair.d.add(PROMPT, offer, tokens=4)
        for _ in range(60):
            CLOCK.advance(1.0)
            pair.d.step()
            pair.p.step()
        assert pair.p.scheduler.requests == {}
        pair.p.run(pair.p.add([3] * 60, FIRST))  # takes the blocks
        pair.d.run(first)
        ends_rightly(pair.d, name, PROMPT, 4)
        assert FABRIC.done == []
