"""How connections of the HTTP server end: clients that leave, drains, cuts."""

import asyncio

import pytest

from disaggpair_bed.fakes.application import Gate, Served, answer, echo, serving, streaming, work
from disaggpair_bed.rawconnection import RawConnection, in_chunks, post, request
from disaggpair_bed.routing import eventually
from disaggpair_router.inbound.message import TEXT, Answer, Responder


class Outliving:
    """A work that goes on without its client until it is let through."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.begun = 0
        self.left = 0
        self.was_gone: list[bool] = []

    async def __call__(self, body: bytes, responder: Responder) -> Answer:
        self.begun += 1
        responder.when_gone(self._left)
        await self.opened.wait()
        self.was_gone.append(responder.is_gone)
        assert not (responder.is_gone and responder.send(b"dropped"))
        await responder.drained()
        return Answer(200, body, TEXT)

    def _left(self) -> None:
        self.left += 1


def leave(client: RawConnection, how: str) -> None:
    if how == "cut":
        client.cut()
    elif how == "closed":
        client.writer.close()
    else:
        client.writer.write_eof()


HOW = ["cut", "closed", "half-closed"]


@pytest.mark.parametrize("how", HOW)
async def test_the_work_of_a_client_that_left_is_cancelled(how: str) -> None:
    gate = Gate()
    async with serving() as served:
        served.script.routes["/"] = work(gate)
        client = await served.asked(post("/", b"body"))
        await eventually(lambda: gate.waiting == 1)
        leave(client, how)
        await eventually(lambda: gate.cancelled == 1)
        await eventually(lambda: not (served.server.open or served.server.tasks))
        assert served.server.held_bytes == 0


@pytest.mark.parametrize("how", HOW)
async def test_a_work_that_minds_is_told_once_and_goes_on(how: str) -> None:
    outliving = Outliving()
    async with serving() as served:
        served.script.routes["/"] = work(outliving)
        client = await served.asked(post("/", b"body"))
        await eventually(lambda: outliving.begun == 1)
        leave(client, how)
        await eventually(lambda: outliving.left == 1)
        await eventually(lambda: not served.server.open)
        assert len(served.server.tasks) == 1
        assert served.server.held_bytes == 4  # as long as something may need it
        outliving.opened.set()
        await eventually(lambda: not served.server.tasks)
        assert (outliving.left, outliving.was_gone) == (1, [True])


async def test_a_work_whose_client_stayed_is_told_nothing() -> None:
    outliving = Outliving()
    outliving.opened.set()
    async with serving() as served:
        served.script.routes["/"] = work(outliving)
        client = await served.asked(post("/", b"body"))
        assert (await client.answer()).body == b"body"
        client.cut()
        await eventually(lambda: not served.server.open)
        assert (outliving.left, outliving.was_gone) == (0, [False])


async def test_a_stream_that_waits_for_its_client_wakes_when_it_leaves() -> None:
    ended = asyncio.Event()

    async def torrent(body: bytes, responder: Responder) -> None:
        responder.stream({"Content-Type": "text/plain"})
        responder.when_gone(lambda: None)
        while not responder.is_gone:
            if responder.send(b"x" * 65_536):
                await responder.drained()
        ended.set()

    async with serving() as served:
        served.script.routes["/"] = work(torrent)
        client = await served.client(receive_bytes=4096)
        await client.send(request())
        connection = next(iter(served.server._connections))
        await eventually(lambda: connection._out.is_full)
        client.cut()
        await asyncio.wait_for(ended.wait(), 20)


async def test_requests_that_wait_are_dropped_once_their_client_is_seen_to_have_left() -> None:
    # While requests wait nothing is read, so a client that leaves is seen when it is written to.
    outliving = Outliving()
    async with serving() as served:
        served.script.routes["/"] = work(outliving)
        raw = post("/", b"one") * 60 + post("/", b"three")[:-1]
        client = await served.asked(raw)
        await eventually(lambda: served.server.held_bytes == 184)
        client.cut()
        outliving.opened.set()
        await eventually(lambda: not served.server.open)
        await eventually(lambda: served.server.held_bytes == 0)
        assert outliving.begun < 60


async def test_a_work_that_is_cancelled_cuts_its_client() -> None:
    gate = Gate()
    async with serving() as served:
        served.script.routes["/"] = work(gate)
        client = await served.asked(post("/", b"a") * 2)
        await eventually(lambda: gate.waiting == 1)
        for task in served.server.tasks:
            task.cancel()
        assert await client.is_closed()
        assert gate.cancelled == 1


async def test_a_client_that_leaves_in_a_head_or_body_leaves_nothing() -> None:
    async with serving() as served:
        served.script.routes["/"] = work(echo)
        for raw in (b"GET / HT", post("/", b"body")[:-1], in_chunks("/", b"a", last=False)):
            client = await served.asked(raw)
            await eventually(lambda: _is_reading(served))
            await client.close()
            await eventually(lambda: not served.server.open)
        assert served.script.faults == []


def _is_reading(served: Served) -> bool:
    return any(
        one._reading.is_in_head or one._reading.is_in_body for one in served.server._connections
    )


async def test_what_was_answered_before_a_client_left_has_gone_out() -> None:
    async with serving() as served:
        served.script.routes["/"] = answer(body=b"x" * 100_000)
        client = await served.asked(request() * 3)
        client.writer.write_eof()
        assert [len((await client.answer()).body) for _ in range(3)] == [100_000] * 3
        assert await client.is_closed()


# -- drains --------------------------------------------------------------------------------


async def test_a_drain_closes_what_is_idle_and_lets_answers_end() -> None:
    gate = Gate()
    async with serving() as served:
        served.script.routes["/"] = work(gate)
        idle, used = await served.client(), await served.asked(request("/none"))
        await used.answer()
        busy = await served.asked(post("/", b"answer"))
        await eventually(lambda: gate.waiting == 1)
        served.server.close_idle()
        assert await idle.is_closed()
        assert await used.is_closed()
        gate.opened.set()
        got = await busy.answer()
        assert (got.body, got.headers["connection"]) == (b"answer", "close")
        assert await busy.is_closed()


async def test_a_drain_lets_requests_that_are_coming_be_answered() -> None:
    async with serving() as served:
        served.script.routes["/"] = work(echo)
        head, body = (
            await served.asked(b"GET / HTTP/1.1\r\nX"),
            await served.asked(post("/", b"body")[:-1]),
        )
        await eventually(
            lambda: all(
                one._reading.is_in_head or one._reading.is_in_body
                for one in served.server._connections
            )
        )
        served.server.close_idle()
        await head.send(b": a\r\n\r\n")
        await body.send(b"y")
        for client, expected in ((head, b""), (body, b"body")):
            got = await client.answer()
            assert (got.body, got.headers["connection"]) == (expected, "close")
            assert await client.is_closed()


async def test_a_stream_that_began_before_a_drain_ends_whole_and_its_connection_after_it() -> None:
    gate = asyncio.Event()

    async def run(body: bytes, responder: Responder) -> None:
        responder.stream({"Content-Type": "text/plain"})
        responder.send(b"a")
        await gate.wait()
        responder.send(b"b")

    async with serving() as served:
        served.script.routes = {"/s": work(run), "/now": answer()}
        client = await served.asked(request("/s"))
        await client.head()
        both = await served.asked(request("/s") + request("/now"))
        await both.head()
        served.server.close_idle()
        gate.set()
        assert [await client.chunk() for _ in range(3)] == [b"a", b"b", b""]
        assert await client.is_closed()
        assert [await both.chunk() for _ in range(3)] == [b"a", b"b", b""]
        assert (await both.answer()).headers["connection"] == "close"
        assert await both.is_closed()


async def test_a_connection_that_comes_in_a_drain_is_closed() -> None:
    async with serving() as served:
        served.server.close_idle()
        client = await RawConnection.connect(served.port)
        assert await client.is_closed()
        await client.close()


async def test_closing_waits_for_answers_on_their_way() -> None:
    async with serving() as served:
        served.script.routes["/"] = answer(body=b"x" * 8 * 2**20)
        client = await served.client(receive_bytes=4096)
        await client.send(request())
        connection = next(iter(served.server._connections))
        await eventually(lambda: connection._out.is_full)
        closed = asyncio.create_task(served.server.close(20))
        client.read_on()
        assert len((await client.answer()).body) == 8 * 2**20
        await closed
        assert not served.server.open


async def test_closing_cuts_what_does_not_end() -> None:
    gate, outliving = Gate(), Outliving()
    async with serving() as served:
        served.script.routes = {
            "/": work(gate),
            "/o": work(outliving),
            "/s": streaming(b"x" * 2**23),
        }
        clients = [await served.asked(raw) for raw in (post("/", b"a"), post("/o", b"a"), b"GET /")]
        slow = await served.client(receive_bytes=4096)
        await slow.send(request("/s"))
        await eventually(lambda: gate.waiting == outliving.begun == 1)
        await served.server.close(0.01)
        assert (outliving.left, outliving.was_gone) == (1, [])
        assert gate.cancelled == 1
        for client in clients:
            assert await client.is_closed()


async def test_closing_a_server_without_connections_takes_no_time() -> None:
    async with serving() as served:
        await asyncio.wait_for(served.server.close(1_000), 20)
        await asyncio.wait_for(served.server.close(1_000), 20)


async def test_what_outlives_one_connection_leaves_others_alone() -> None:
    outliving = Outliving()
    async with serving() as served:
        served.script.routes = {"/": work(outliving), "/now": answer()}
        client = await served.asked(post("/", b"a"))
        await eventually(lambda: outliving.begun == 1)
        client.cut()
        await eventually(lambda: not served.server.open)
        other = await served.asked(request("/now"))
        outliving.opened.set()
        assert (await other.answer()).body == b"now"
