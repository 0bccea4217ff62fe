"""Many connections at once, in any order of what can happen, beside a model that counts bodies."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import uvloop
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from disaggpair_bed.fakes.application import Script, answer
from disaggpair_bed.rawconnection import in_chunks, post, request
from disaggpair_router.inbound.message import TEXT, Answer, Responder
from disaggpair_router.inbound.patience import Patience
from disaggpair_router.inbound.server import Server

MAX_BODY, MAX_HELD = 300, 800
PATIENCE = Patience(idle=20, head=10, body=15, stalled=12, linger=3)


class Transport:
    """A client's end, which takes what it is made to take."""

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: Any) -> None:
        self._loop, self._protocol = loop, protocol
        self._high = 0
        self._is_full = False
        self.is_ending = False
        self.is_lost = False
        self.is_reading = True
        self.is_ended = False
        self.unsent = 0
        protocol.connection_made(self)

    def get_extra_info(self, name: str) -> Any:
        return ("10.0.0.1", 1) if name == "peername" else None

    def set_write_buffer_limits(self, high: int) -> None:
        self._high = high

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def write(self, data: bytes) -> None:
        assert not self.is_ended
        if self.is_ending:
            return
        self.unsent += len(data)
        if self.unsent > self._high and not self._is_full:
            self._is_full = True
            self._protocol.pause_writing()

    def write_eof(self) -> None:
        self.is_ended = True

    def pause_reading(self) -> None:
        assert not self.is_lost
        self.is_reading = False

    def resume_reading(self) -> None:
        assert not self.is_lost
        self.is_reading = True

    def take(self, count: int) -> None:
        """The client reads."""
        self.unsent = max(0, self.unsent - count)
        if self._is_full and self.unsent <= self._high // 4:
            self._is_full = False
            self._protocol.resume_writing()
        if self.is_ending and not self.unsent:
            self._lose()

    def close(self) -> None:
        if not self.is_ending:
            self.is_ending = True
            if not self.unsent:
                self._lose()

    def abort(self) -> None:
        self.is_ending = True
        self.unsent = 0
        self._lose()

    def _lose(self) -> None:
        if not self.is_lost:
            self.is_lost = True
            self._loop.call_soon(self._protocol.connection_lost, None)

    def send(self, data: bytes) -> None:
        """The client sends."""
        if self.is_reading and not self.is_ending:
            self._protocol.data_received(data)

    def leave(self) -> None:
        """The client closes its side, which nobody sees who does not read."""
        if self.is_reading:
            self.close()


def _open(gates: list[asyncio.Future[str]], how: str) -> None:
    for gate in gates:
        if not gate.done():
            gate.set_result(how)


class Connections(RuleBasedStateMachine):
    """After each step, no more is held than what works and unfinished bodies account for."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = uvloop.new_event_loop()
        self.gates: list[asyncio.Future[str]] = []
        routes = {"/now": answer(), "/work": lambda head: self.work}
        script = Script(MAX_BODY, routes)
        self.server = Server(script, patience=PATIENCE, max_held_bytes=MAX_HELD)
        self.clients: list[Transport] = []

    def run(self, act: Callable[[], object]) -> None:
        """Do it inside the loop, then let everything run that can."""

        async def steps() -> None:
            act()
            for _ in range(10):
                await asyncio.sleep(0)

        self.loop.run_until_complete(steps())

    async def work(self, body: bytes, responder: Responder) -> Answer | None:
        gate: asyncio.Future[str] = self.loop.create_future()
        self.gates.append(gate)
        try:
            if body.startswith(b"o"):
                responder.when_gone(lambda: None)
            how = await gate
            if how == "raise":
                raise ZeroDivisionError
            if how == "stream":
                responder.stream({"Content-Type": "text/plain"})
                for _ in range(4):
                    if responder.send(b"x" * 30_000):
                        await responder.drained()
                return None
            return Answer(200, body * (1_000 if how == "large" else 1), TEXT)
        finally:
            self.gates.remove(gate)

    @rule()
    def opens(self) -> None:
        def join() -> None:
            self.clients.append(Transport(self.loop, self.server()))

        if len(self.clients) < 5:
            self.run(join)

    @precondition(lambda self: self.clients)
    @rule(
        data=st.data(),
        path=st.sampled_from(["/work", "/now", "/none"]),
        size=st.sampled_from([0, 1, 100, MAX_BODY, MAX_BODY + 1, 70_000]),
        form=st.sampled_from(["length", "chunks", "bare", "bad", "close", "1.0", "expect", "h2c"]),
        outlives=st.booleans(),
        part=st.sampled_from([1.0, 1.0, 0.3, 0.9]),
        count=st.sampled_from([1, 1, 2, 70]),
    )
    def asks(
        self,
        data: st.DataObject,
        path: str,
        size: int,
        form: str,
        outlives: bool,
        part: float,
        count: int,
    ) -> None:
        """Some of a request, or some requests; what follows may be taken for the rest."""
        body = (b"o" if outlives else b"x") * size
        raw = {
            "length": lambda: post(path, body),
            "chunks": lambda: in_chunks(path, *([body] if body else [])),
            "bare": lambda: request(path),
            "bad": lambda: in_chunks(path, b"x", last=False) + b"bad\r\n",
            "close": lambda: post(path, body, "Connection: close"),
            "1.0": lambda: post(path, body).replace(b"HTTP/1.1", b"HTTP/1.0"),
            "expect": lambda: post(path, body, "Expect: 100-continue"),
            "h2c": lambda: post(path, body, "Connection: Upgrade", "Upgrade: h2c"),
        }[form]()
        raw *= count
        client = data.draw(st.sampled_from(self.clients))
        self.run(lambda: client.send(raw[: int(len(raw) * part)]))

    @precondition(lambda self: self.gates)
    @rule(data=st.data(), how=st.sampled_from(["whole", "large", "stream", "raise"]))
    def finishes(self, data: st.DataObject, how: str) -> None:
        gate = data.draw(st.sampled_from(self.gates))
        self.run(partial(_open, [gate], how))

    @precondition(lambda self: self.server.tasks)
    @rule()
    def is_cancelled(self) -> None:
        self.run(lambda: next(iter(self.server.tasks)).cancel())

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), count=st.sampled_from([1, 10_000, 10_000_000]))
    def reads(self, data: st.DataObject, count: int) -> None:
        client = data.draw(st.sampled_from(self.clients))
        self.run(lambda: client.take(count))

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), how=st.sampled_from([Transport.leave, Transport.abort]))
    def leaves(self, data: st.DataObject, how: Callable[[Transport], None]) -> None:
        client = data.draw(st.sampled_from(self.clients))
        self.clients.remove(client)
        self.run(lambda: how(client))
        if not client.is_lost:
            self.run(client.abort)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), how=st.sampled_from(["whole", "stream"]))
    def leaves_as_its_answer_ends(self, data: st.DataObject, how: str) -> None:
        client = data.draw(st.sampled_from(self.clients))
        self.clients.remove(client)

        def both() -> None:
            _open(self.gates, how)
            client.abort()

        self.run(both)

    @rule(count=st.sampled_from([1, 3, 11, 25]))
    def time_passes(self, count: int) -> None:
        self.run(lambda: self.server.tick(count))

    @rule()
    def drains(self) -> None:
        self.run(self.server.close_idle)

    @invariant()
    def nothing_is_lost(self) -> None:
        self.clients = [one for one in self.clients if not one.is_lost]
        server = self.server
        assert server.open == len(self.clients)
        assert len(server.tasks) == len(self.gates)
        # A piece may take it over, and is given up at once.
        assert 0 <= server.held_bytes <= MAX_HELD
        if not (server.tasks or self.clients):
            assert server.held_bytes == 0

    def teardown(self) -> None:
        for client in self.clients:
            self.run(client.abort)
        self.run(partial(_open, self.gates, "whole"))
        try:
            assert not self.server.open
            assert not self.server.tasks
            assert self.server.held_bytes == 0
        finally:
            self.loop.close()


TestConnections = Connections.TestCase
TestConnections.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
