"""Bodies that are not wanted, too long or too many: the client has its answer all the same."""

import asyncio
import socket

import pytest

from disaggpair_bed.fakes.application import Gate, Script, answer, echo, serving, work
from disaggpair_bed.rawconnection import in_chunks, post, request
from disaggpair_bed.routing import eventually

MB = 2**20


def all_sent_before_reading(port: int, data: bytes) -> bytes:
    """What a client gets that sends everything before it reads anything."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as one:
        one.sendall(data)
        got = b""
        while piece := one.recv(65_536):
            got += piece
        return got


@pytest.mark.parametrize("status", [401, 404])
async def test_a_small_body_that_nobody_wants_is_passed_over(status: int) -> None:
    async with serving() as served:
        served.script.routes = {"/no": answer(status), "/echo": work(echo)}
        client = await served.asked(post("/no", b"x" * 1_000)[:-500])
        got = await client.answer()
        assert (got.status, "connection" in got.headers) == (status, False)
        await client.send(b"x" * 500, post("/echo", b"next"))
        assert (await client.answer()).body == b"next"


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (post("/no", b"x" * 8 * MB), 401),
        (in_chunks("/no", *[b"x" * 65_536] * 128), 401),
        (post("/echo", b"x" * 8 * MB), 413),
        (in_chunks("/echo", *[b"x" * 65_536] * 128), 413),
        (request("/now", "X: " + "x" * 4 * MB), 431),
        (b"\0" + b"x" * 4 * MB, 400),
        (in_chunks("/echo", b"x", last=False) + b"\0" + b"x" * 4 * MB, 400),
    ],
    ids=["length", "chunks", "413", "413 chunks", "431", "400", "400 body"],
)
async def test_a_client_that_sends_everything_first_has_its_answer(raw: bytes, status: int) -> None:
    async with serving(Script(max_body_bytes=MB)) as served:
        served.script.routes = {"/no": answer(401), "/now": answer(), "/echo": work(echo)}
        got = await asyncio.to_thread(all_sent_before_reading, served.port, raw)
        assert got.startswith(b"HTTP/1.1 %d " % status)
        assert b"Connection: close\r\n" in got
        assert got.count(b"HTTP/1.1") == 1


async def test_requests_that_wait_behind_the_last_one_do_not_cost_its_answer() -> None:
    gate = Gate()
    async with serving() as served:
        served.script.routes["/gate"] = work(gate)
        served.script.max_body_bytes = 10
        raw = post("/gate", b"a") + post("/gate", b"too long a body") + post("/gate", b"x" * 4 * MB)
        asked = asyncio.create_task(asyncio.to_thread(all_sent_before_reading, served.port, raw))
        await eventually(lambda: gate.waiting == 1)
        gate.opened.set()
        got = await asked
        assert got.count(b"HTTP/1.1 200") == got.count(b"HTTP/1.1 413") == 1
        assert got.index(b" 200 ") < got.index(b" 413 ")


async def test_a_connection_ends_when_the_unwanted_body_has() -> None:
    async with serving() as served:
        served.script.routes["/no"] = answer(401)
        client = await served.asked(post("/no", b"x" * MB)[: -MB // 2])
        assert (await client.answer()).headers["connection"] == "close"
        assert served.server.open == 1
        await client.send(b"x" * (MB // 2))
        assert await client.is_closed()
        await eventually(lambda: not served.server.open)


async def test_an_unwanted_body_that_does_not_end_is_read_for_a_while_only() -> None:
    async with serving() as served:
        served.script.routes["/no"] = answer(401)
        client = await served.asked(in_chunks("/no", b"x", last=False))
        await client.answer()
        served.server.tick(5)
        await client.send(b"1\r\nx\r\n")
        served.server.tick(1)
        await eventually(lambda: not served.server.open)


async def test_a_body_of_the_bound_is_taken() -> None:
    async with serving(Script(max_body_bytes=1_000)) as served:
        served.script.routes["/"] = work(echo)
        client = await served.asked(post("/", b"x" * 1_000), in_chunks("/", b"x" * 999, b"x"))
        for _ in range(2):
            assert (await client.answer()).body == b"x" * 1_000


async def test_a_request_broken_in_its_body_is_refused_once() -> None:
    async with serving() as served:
        served.script.routes["/"] = work(echo)
        client = await served.asked(in_chunks("/", b"a", last=False) + b"\0" + request("/next"))
        assert (await client.answer()).status == 400
        assert await client.is_closed()
        assert served.script.faults == ["malformed"]
        assert len(served.script.begun) == 1


async def test_a_request_broken_in_an_unwanted_body_leaves_earlier_answers_alone() -> None:
    gate = Gate()
    async with serving() as served:
        served.script.routes = {"/gate": work(gate), "/no": answer(401)}
        broken = in_chunks("/no", b"a", last=False) + b"\0"
        client = await served.asked(post("/gate", b"first") + broken)
        await eventually(lambda: gate.waiting == 1)
        gate.opened.set()
        assert (await client.answer()).body == b"first"
        got = await client.answer()
        assert (got.status, got.headers["connection"]) == (401, "close")
        assert await client.is_closed()


async def test_bytes_that_are_no_request_reach_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    async with serving() as served:
        client = await served.asked(b"GET / HTTP/1.1\r\nAuthorization: secret\n-key\r\n\r\n")
        assert (await client.answer()).status == 400
    assert "a request from 127.0.0.1 could not be read" in caplog.text
    assert "secret" not in caplog.text


async def test_h91_bodies_of_all_requests_together_are_bounded() -> None:
    gate = Gate()
    async with serving(max_held_bytes=1_000) as served:
        served.script.routes = {"/gate": work(gate), "/now": answer()}
        first = await served.asked(post("/gate", b"x" * 600))
        await eventually(lambda: gate.waiting == 1)
        second = await served.asked(post("/gate", b"x" * 600))
        got = await second.answer()
        assert (got.status, got.headers["connection"]) == (503, "close")
        assert served.server.held_bytes == 600
        third = await served.asked(request("/now"), post("/gate", b"x" * 300))
        assert (await third.answer()).status == 200
        gate.opened.set()
        assert (await first.answer()).status == (await third.answer()).status == 200
        await first.send(post("/gate", b"x" * 1_000))
        assert (await first.answer()).status == 200
        assert served.script.faults == ["overloaded"]


async def test_a_body_counts_from_its_first_byte() -> None:
    async with serving() as served:
        served.script.routes["/"] = work(echo)
        client = await served.asked(post("/", b"x" * 100)[:-40])
        await eventually(lambda: served.server.held_bytes == 60)
        client.cut()
        await eventually(lambda: served.server.held_bytes == 0)


async def test_a_body_that_was_refused_does_not_count_while_its_refusal_waits() -> None:
    gate = Gate()
    async with serving(Script(max_body_bytes=10)) as served:
        served.script.routes["/"] = work(gate)
        await served.asked(post("/", b"a") + post("/", b"x" * 11))
        await eventually(lambda: served.script.faults == ["body_too_large"])
        await eventually(lambda: gate.waiting == 1)
        assert served.server.held_bytes == 1


async def test_a_work_that_never_began_holds_nothing() -> None:
    gate = Gate()
    async with serving() as served:
        served.script.routes["/"] = work(gate)
        client = await served.asked(post("/", b"first") + post("/", b"second"))
        await eventually(lambda: gate.waiting == 1)
        connection = next(iter(served.server._connections))
        # The connection is lost after the second work was made and before it has run.
        running = next(iter(served.server.tasks))
        running.add_done_callback(lambda _: connection.connection_lost(None))
        gate.opened.set()
        assert (await client.answer()).body == b"first"
        await eventually(lambda: not served.server.tasks)
        assert served.server.held_bytes == 0
        client.cut()
        connection.cut()
