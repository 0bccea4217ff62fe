"""Answers of the HTTP server: their form, their order, and when a connection serves on."""

import asyncio
import email.utils
from typing import Any

import pytest

from disaggpair_bed.fakes.application import Gate, answer, echo, serving, streaming, work
from disaggpair_bed.rawconnection import RawConnection, in_chunks, post, request
from disaggpair_bed.routing import eventually
from disaggpair_router.inbound.message import Answer, Head, Responder


async def test_a_connection_serves_on() -> None:
    async with serving() as served:
        served.script.routes = {"/now": answer(), "/echo": work(echo), "/s": streaming(b"a", b"b")}
        client = await served.client()
        for _ in range(3):
            await client.send(request("/now"))
            assert (await client.answer()).body == b"now"
            await client.send(post("/echo", b"body"))
            assert (await client.answer()).body == b"body"
            await client.send(in_chunks("/echo", b"bo", b"dy"))
            assert (await client.answer()).body == b"body"
            await client.send(post("/s", b""))
            assert (await client.answer()).body == b"ab"
        assert served.server.open == 1


async def test_an_answer_has_a_type_a_date_a_length_and_its_own_headers() -> None:
    async with serving() as served:
        served.script.routes["/"] = answer(429, b"later", **{"Retry-After": "1"})
        client = await served.asked(request())
        got = await client.answer()
        assert got.head.startswith(b"HTTP/1.1 429 Too Many Requests\r\n")
        assert got.headers.keys() == {"content-type", "date", "content-length", "retry-after"}
        assert got.headers["date"].endswith(" GMT")
        email.utils.parsedate_to_datetime(got.headers["date"])


async def test_a_stream_has_chunks_and_its_own_headers() -> None:
    async with serving() as served:
        served.script.routes["/"] = streaming(b"one", b"", b"two")
        client = await served.asked(request())
        head = await client.head()
        assert head.headers["content-type"] == "text/event-stream"
        assert (head.headers["transfer-encoding"], head.headers["x-a"]) == ("chunked", "b")
        assert [await client.chunk() for _ in range(3)] == [b"one", b"two", b""]


async def test_a_stream_without_bytes_is_an_empty_answer() -> None:
    async with serving() as served:
        served.script.routes["/"] = streaming()
        client = await served.asked(request(), request())
        assert [(await client.answer()).body for _ in range(2)] == [b"", b""]


async def test_answers_come_in_the_order_of_their_requests() -> None:
    gate = Gate()
    async with serving() as served:
        served.script.routes = {"/gate": work(gate), "/now": answer(), "/s": streaming(b"s")}
        pipelined = post("/gate", b"1") + request("/now") + post("/gate", b"2") + request("/s")
        client = await served.asked(pipelined)
        await eventually(lambda: gate.waiting == 1)
        gate.opened.set()
        assert [(await client.answer()).body for _ in range(4)] == [b"1", b"now", b"2", b"s"]


async def test_one_request_of_a_connection_is_in_work_and_no_more_are_read() -> None:
    gate = Gate()
    async with serving() as served:
        served.script.routes = {"/gate": work(gate)}
        client = await served.asked(post("/gate", b"1"), post("/gate", b"2"))
        await eventually(lambda: len(served.script.begun) == 2)
        await client.send(*[post("/gate", b"3")] * 3)
        for _ in range(20):
            await asyncio.sleep(0)
        assert (gate.waiting, len(served.script.begun)) == (1, 2)
        gate.opened.set()
        assert [(await client.answer()).body for _ in range(5)] == [b"1", b"2", *[b"3"] * 3]


async def test_requests_that_wait_are_bounded() -> None:
    gate = Gate()
    async with serving() as served:
        served.script.routes = {"/gate": work(gate)}
        client = await served.asked(post("/gate", b"x") * 65)
        await eventually(lambda: gate.waiting == 1)
        many = await served.asked(post("/gate", b"x") * 67)
        assert await many.is_closed()
        gate.opened.set()
        assert [(await client.answer()).body for _ in range(65)] == [b"x"] * 65


async def test_a_client_that_asks_on_and_reads_nothing_is_bounded() -> None:
    async with serving() as served:
        served.script.routes["/"] = answer(body=b"x" * 50_000)
        client = await served.client(receive_bytes=4096)
        # Comes in many pieces, so that reading ends long before the bound of one piece.
        sending = asyncio.create_task(client.send(*[request() * 10] * 2_000))
        connection = next(iter(served.server._connections))
        await eventually(lambda: connection._out.is_full)
        asked = -1
        while asked != len(served.script.begun):
            asked = len(served.script.begun)
            await asyncio.sleep(0.05)
        assert connection._out.unsent < 2**20
        assert asked < 20_000
        client.cut()
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def test_head_is_answered_without_a_body() -> None:
    async with serving() as served:
        served.script.routes = {"/now": answer(), "/echo": work(echo)}
        heads = request("/now", method="HEAD") + request("/none", method="HEAD")
        client = await served.asked(heads, request("/now"))
        first = await client.answer(method="HEAD")
        assert (first.status, first.headers["content-length"]) == (200, "3")
        assert (await client.answer(method="HEAD")).status == 404
        assert (await client.answer()).body == b"now"


@pytest.mark.parametrize("path", ["/now", "/s"])
async def test_http_1_0_gets_no_chunks_and_one_answer(path: str) -> None:
    async with serving() as served:
        served.script.routes = {"/now": answer(), "/s": streaming(b"no", b"w")}
        raw = request(path, "Connection: keep-alive", "Expect: 100-continue")
        client = await served.asked(raw.replace(b"HTTP/1.1", b"HTTP/1.0"))
        got = await client.answer()
        assert (got.body, got.headers["connection"]) == (b"now", "close")
        assert "transfer-encoding" not in got.headers
        assert await client.is_closed()


@pytest.mark.parametrize("path", ["/now", "/s"])
async def test_a_client_that_wants_no_more_is_not_kept(path: str) -> None:
    async with serving() as served:
        served.script.routes = {"/now": answer(), "/s": streaming(b"no", b"w")}
        client = await served.asked(request(path, "Connection: close"))
        got = await client.answer()
        assert (got.body, got.headers["connection"]) == (b"now", "close")
        assert await client.is_closed()


async def test_a_request_after_one_that_was_to_be_the_last_is_not_asked_about() -> None:
    async with serving() as served:
        served.script.routes = {"/": answer()}
        client = await served.asked(request("/", "Connection: close") + request("/"))
        assert (await client.answer()).status == 200
        assert await client.is_closed()
        assert len(served.script.begun) == 1


async def test_a_client_that_asks_first_is_told_to_go_on() -> None:
    async with serving() as served:
        served.script.routes["/"] = work(echo)
        head, body = post("/", b"body", "Expect: 100-Continue")[:-4], b"body"
        client = await served.asked(head)
        assert (await client.answer()).status == 100
        await client.send(body, request())
        assert [(await client.answer()).body for _ in range(2)] == [body, b""]


async def test_a_client_that_asks_first_and_is_refused_may_go_without_its_body() -> None:
    # Whether it sends the body then is its own choice, so what follows could be either.
    async with serving() as served:
        served.script.routes["/"] = answer(401)
        client = await served.asked(post("/", b"body", "Expect: 100-continue")[:-4])
        got = await client.answer()
        assert (got.status, got.headers["connection"]) == (401, "close")
        assert await client.is_closed()


async def test_a_work_that_raises_is_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    async def breaks(body: bytes, responder: Responder) -> Answer:
        raise ZeroDivisionError

    async with serving() as served:
        served.script.routes = {"/": work(breaks), "/now": answer()}
        client = await served.asked(post("/", b"body"), request("/now"))
        assert (await client.answer()).status == 500
        assert (await client.answer()).status == 200
        assert served.script.faults == ["failed"]
    assert "a request failed" in caplog.text


@pytest.mark.parametrize("raises", [ZeroDivisionError, asyncio.CancelledError])
async def test_a_stream_whose_work_ends_otherwise_is_no_whole_stream(raises: Any) -> None:
    async def breaks(body: bytes, responder: Responder) -> None:
        responder.stream({"Content-Type": "text/event-stream"})
        responder.send(b"a")
        raise raises

    async with serving() as served:
        served.script.routes["/"] = work(breaks)
        client = await served.asked(request())
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await client.answer()


async def test_a_work_that_answers_after_its_stream_began_is_no_whole_stream() -> None:
    async def both(body: bytes, responder: Responder) -> Answer:
        responder.stream({"Content-Type": "text/event-stream"})
        responder.send(b"a")
        return Answer()

    async with serving() as served:
        served.script.routes["/"] = work(both)
        client = await served.asked(request())
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await client.answer()


@pytest.mark.parametrize("raises", [False, True])
async def test_a_stream_that_said_it_was_its_last_is_whole_whatever_its_work_does(
    raises: bool,
) -> None:
    async def run(body: bytes, responder: Responder) -> None:
        responder.stream({"Content-Type": "text/plain"})
        responder.send(b"a")
        responder.send(b"b", last=True)
        assert not responder.send(b"c")
        if raises:
            raise ZeroDivisionError

    async with serving() as served:
        served.script.routes["/"] = work(run)
        client = await served.asked(request(), request())
        assert [(await client.answer()).body for _ in range(2)] == [b"ab", b"ab"]


async def test_what_is_sent_after_the_end_is_dropped() -> None:
    kept: list[Responder] = []

    async def run(body: bytes, responder: Responder) -> Answer:
        kept.append(responder)
        return Answer()

    async with serving() as served:
        served.script.routes = {"/": work(run), "/now": answer()}
        client = await served.asked(request())
        await client.answer()
        assert not kept[0].send(b"late")
        await client.send(request("/now"))
        assert (await client.answer()).body == b"now"


@pytest.mark.parametrize("at_once", [False, True])
async def test_an_answer_that_cannot_be_sent_is_a_failure(
    at_once: bool, caplog: pytest.LogCaptureFixture
) -> None:
    bad = Answer(headers={"X-A": "b\r\nX-C: d"})

    async def run(body: bytes, responder: Responder) -> Answer:
        return bad

    async with serving() as served:
        served.script.routes["/"] = (lambda head: bad) if at_once else work(run)
        client = await served.asked(request())
        if at_once:
            assert await client.is_closed()
        else:
            assert (await client.answer()).status == 500
    assert "line break" in caplog.text


async def test_an_application_that_raises_ends_its_connection_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def raises(head: Head) -> Answer:
        raise ZeroDivisionError

    async with serving() as served:
        served.script.routes["/bad"] = raises
        other = await served.client()
        client = await served.asked(request("/bad"))
        assert await client.is_closed()
        await other.send(request())
        assert (await other.answer()).status == 404
        assert served.script.faults == []
    assert "ZeroDivisionError" in caplog.text


async def test_the_date_is_that_of_the_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as served:
        monkeypatch.setattr("time.time", lambda: 0.0)
        served.server.tick()
        client: RawConnection = await served.asked(request())
        assert (await client.answer()).headers["date"] == "Thu, 01 Jan 1970 00:00:00 GMT"
