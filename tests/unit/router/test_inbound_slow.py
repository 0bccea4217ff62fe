"""Clients that are slow or silent: who is waited for, and how long. Seconds are counted by hand."""

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from disaggpair_bed.fakes.application import Gate, Served, answer, echo, serving, streaming, work
from disaggpair_bed.rawconnection import RawConnection, in_chunks, post, request
from disaggpair_bed.routing import eventually
from disaggpair_router.inbound.connection import Connection
from disaggpair_router.inbound.message import Responder
from disaggpair_router.inbound.patience import Patience

PATIENCE = Patience(idle=75, head=30, body=60, stalled=300, linger=5)


async def holds(served: Served, count: int) -> None:
    await eventually(lambda: served.server.held_bytes == count)


def only(served: Served) -> Connection:
    (connection,) = served.server._connections
    return connection


@pytest.mark.parametrize("requests_before", [0, 1])
async def test_an_idle_connection_is_closed(requests_before: int) -> None:
    async with serving(patience=PATIENCE) as served:
        client = await served.asked(*[request()] * requests_before)
        for _ in range(requests_before):
            await client.answer()
        served.server.tick(75)
        assert not only(served)._is_closing
        served.server.tick(1)
        assert await client.is_closed()
        assert served.script.faults == []


async def test_a_request_keeps_a_connection_open() -> None:
    async with serving(patience=PATIENCE) as served:
        client = await served.client()
        for _ in range(3):
            served.server.tick(75)
            await client.send(request())
            assert (await client.answer()).status == 404


async def test_h96_a_head_that_trickles_in_is_refused_in_time() -> None:
    async with serving(patience=PATIENCE) as served:
        client = await served.client()
        for letter in b"GET / HTTP/1.1\r\nX: aaaaaaaaaaa":
            await client.send(bytes([letter]))
            await eventually(lambda: only(served)._reading.is_in_head)
            served.server.tick()
        assert served.script.faults == []
        served.server.tick()
        got = await client.answer()
        assert (got.status, got.headers["connection"]) == (408, "close")
        assert await client.is_closed()


async def test_a_body_may_pause_but_not_for_long() -> None:
    async with serving(patience=PATIENCE) as served:
        served.script.routes["/"] = work(echo)
        client = await served.asked(post("/", b"xxx")[:-3])
        await eventually(lambda: only(served)._reading.is_in_body)
        for count in (1, 2):
            served.server.tick(60)
            await client.send(b"x")
            await holds(served, count)
        served.server.tick(60)
        assert served.script.faults == []
        served.server.tick()
        assert (await client.answer()).status == 408
        assert await client.is_closed()
        assert served.server.held_bytes == 0


async def test_an_unwanted_body_that_does_not_come_is_closed_without_another_answer() -> None:
    async with serving(patience=PATIENCE) as served:
        served.script.routes["/"] = answer(401)
        client = await served.asked(post("/", b"xxx")[:-1])
        assert (await client.answer()).status == 401
        served.server.tick(61)
        assert await client.is_closed()
        assert served.script.faults == []


async def test_a_work_may_take_its_time_and_the_next_request_its_own() -> None:
    gate = Gate()
    async with serving(patience=PATIENCE) as served:
        served.script.routes = {"/gate": work(gate), "/": answer()}
        client = await served.asked(post("/gate", b"a"), b"GET / HT")
        await eventually(lambda: only(served)._reading.is_in_head)
        served.server.tick(100_000)
        gate.opened.set()
        assert (await client.answer()).body == b"a"
        served.server.tick(30)
        await client.send(b"TP/1.1\r\n\r\n")
        assert (await client.answer()).body == b"now"


async def test_a_client_that_was_answered_late_need_not_close_first() -> None:
    async with serving(patience=PATIENCE) as served:
        client = await served.asked(b"G")
        await eventually(lambda: only(served)._reading.is_in_head)
        served.server.tick(31)
        assert (await client.answer()).status == 408
        served.server.tick(5)
        assert served.server.open == 1
        await client.send(b"ET / HTTP/1.1\r\n\r\n")
        served.server.tick(1)
        await eventually(lambda: not served.server.open)


# -- clients that do not read --------------------------------------------------------------


async def read_until(client: RawConnection, holds: Callable[[], bool]) -> None:
    """A client that reads nothing else reads until a condition holds."""
    client.read_on()
    while not holds():
        assert await client.reader.read(2**16)
        await asyncio.sleep(0)
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # one that reads


def _more(torrent: "Torrent", held_up: int) -> bool:
    return torrent.held_up > held_up


def _less(connection: Connection, unsent: int) -> bool:
    return connection._out.unsent < unsent


class Torrent:
    """A stream that goes on for as long as its client is there."""

    def __init__(self) -> None:
        self.sent = 0
        self.held_up = 0
        self.gone = 0

    async def __call__(self, body: bytes, responder: Responder) -> None:
        responder.stream({"Content-Type": "text/event-stream"})
        responder.when_gone(self._left)
        while not responder.is_gone:
            self.sent += 1
            if responder.send(b"x" * 10_000):
                self.held_up += 1
                await responder.drained()
            else:
                await asyncio.sleep(0)

    def _left(self) -> None:
        self.gone += 1


async def test_a_stream_goes_at_the_pace_of_its_client() -> None:
    torrent = Torrent()
    async with serving(patience=PATIENCE) as served:
        served.script.routes["/"] = work(torrent)
        client = await served.client(receive_bytes=4096)
        await client.send(request())
        for _ in range(3):
            await eventually(lambda: only(served)._out.is_full)
            held_up = torrent.held_up
            assert only(served)._out.unsent < 80_000
            await read_until(client, partial(_more, torrent, held_up))
        client.cut()
        await eventually(lambda: not served.server.tasks)
        assert torrent.gone == 1


async def test_h96_a_client_that_takes_nothing_is_cut() -> None:
    torrent = Torrent()
    async with serving(patience=PATIENCE) as served:
        served.script.routes["/"] = work(torrent)
        client = await served.client(receive_bytes=4096)
        await client.send(request())
        await eventually(lambda: only(served)._out.is_full)
        served.server.tick()
        served.server.tick(300)
        assert torrent.gone == 0
        served.server.tick()
        await eventually(lambda: not served.server.open)
        assert torrent.gone == 1
        await eventually(lambda: not served.server.tasks)


LARGE = 8 * 2**20


@pytest.mark.parametrize("header", ["Connection: close", "Connection: keep-alive"])
async def test_a_large_answer_may_take_long_while_the_client_takes_some(header: str) -> None:
    async with serving(patience=PATIENCE) as served:
        served.script.routes["/"] = answer(body=b"x" * LARGE)
        client = await served.client(receive_bytes=4096)
        await client.send(request("/", header))
        await eventually(lambda: only(served)._out.is_full)
        for _ in range(3):
            unsent = only(served)._out.unsent
            await read_until(client, partial(_less, only(served), unsent))
            served.server.tick(299)
        assert served.server.open == 1
        assert only(served)._out.unsent > 0
        served.server.tick()
        served.server.tick(301)
        await eventually(lambda: not served.server.open)


@pytest.mark.parametrize("header", ["Connection: close", "Connection: keep-alive"])
async def test_a_large_answer_is_whole(header: str) -> None:
    async with serving(patience=PATIENCE) as served:
        served.script.routes["/"] = answer(body=b"x" * LARGE)
        client = await served.client(receive_bytes=4096)
        await client.send(request("/", header))
        await eventually(lambda: only(served)._out.is_full)
        served.server.tick(100)
        client.read_on()
        assert (await client.answer()).body == b"x" * LARGE


async def test_a_client_that_takes_nothing_of_its_last_answer_is_cut() -> None:
    async with serving(patience=PATIENCE) as served:
        served.script.routes["/"] = answer(body=b"x" * LARGE)
        client = await served.client(receive_bytes=4096)
        await client.send(request("/", "Connection: close"))
        await eventually(lambda: only(served)._out.is_full)
        served.server.tick()
        served.server.tick(300)
        assert served.server.open == 1
        served.server.tick()
        await eventually(lambda: not served.server.open)


async def test_bytes_that_a_client_sends_do_not_excuse_what_it_does_not_take() -> None:
    async with serving(patience=PATIENCE) as served:
        served.script.routes = {"/": answer(body=b"x" * LARGE), "/echo": work(echo)}
        client = await served.client(receive_bytes=4096)
        await client.send(request())
        await eventually(lambda: only(served)._out.is_full)
        served.server.tick()
        await client.send(post("/echo", b"xx")[:-2])
        for count in (1, 2):
            served.server.tick(150)
            await client.send(b"x")
            await holds(served, count)
        served.server.tick()
        await eventually(lambda: not served.server.open)


async def test_the_next_answer_waits_for_a_slow_client() -> None:
    async with serving(patience=PATIENCE) as served:
        served.script.routes = {"/": answer(body=b"x" * LARGE), "/s": streaming(b"s")}
        client = await served.client(receive_bytes=4096)
        await client.send(request() + request("/s") + in_chunks("/", b"a"))
        await eventually(lambda: len(served.script.begun) == 3)
        assert not served.server.tasks
        client.read_on()
        assert (await client.answer()).body == b"x" * LARGE
        assert (await client.answer()).body == b"s"
        assert (await client.answer()).body == b"x" * LARGE
