"""Connections to engines: answers of any frame, kept connections, and what breaks off."""

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from disaggpair_bed.routing import eventually
from disaggpair_router.pool import NoRoom, Pool, Target, Unconnected, request_head, target_of
from disaggpair_router.wire import Broken, Connection

LIMIT_S = 5.0
OK = b"HTTP/1.1 200 OK\r\n"


@dataclass
class Server:
    """Plays one list of pieces for each request; None ends the connection."""

    answers: list[list[bytes | None]]
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0
    url: str = ""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a client ends a connection."""

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.partition(b"Content-Length: ")[2].split(b"\r\n")[0] or 0)
                self.requests.append(head + await reader.readexactly(length))
                for piece in self.answers.pop(0):
                    if piece is None:
                        return
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            self.ended.set()
        finally:
            writer.close()


@asynccontextmanager
async def serving(*answers: list[bytes | None]) -> AsyncIterator[tuple[Server, Pool]]:
    server = Server(list(answers))
    pool = Pool(connect_s=LIMIT_S, idle_s=60)
    async with await asyncio.start_server(server, "127.0.0.1", 0) as listening:
        server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        yield server, pool
        pool.close()
        await asyncio.sleep(0)


async def ask(pool: Pool, url: str, body: bytes = b"{}") -> tuple[Connection, Target]:
    target = target_of(url)
    connection = await pool.take(target)
    headers = {"Content-Length": str(len(body))}
    connection.send(request_head("POST", target, "/p", headers), body)
    await connection.head(LIMIT_S)
    return connection, target


WHOLE = OK + b"Content-Type: a/b\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"


@pytest.mark.parametrize("answer", [WHOLE, CHUNKED], ids=["length", "chunks"])
@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_an_answer_is_the_same_however_the_network_cuts_it(answer: bytes, size: int) -> None:
    pieces: list[bytes | None] = [answer[at : at + size] for at in range(0, len(answer), size)]
    async with serving(pieces, pieces) as (server, pool):
        for _ in range(2):
            connection, target = await ask(pool, server.url)
            assert connection.status == 200
            assert await connection.whole(LIMIT_S, 2**30) == b"hello"
            pool.give(target, connection)
        assert server.connections == 1


async def test_a_body_without_a_length_ends_with_its_connection() -> None:
    async with serving([OK + b"\r\nhel", b"lo", None]) as (server, pool):
        connection, _ = await ask(pool, server.url)
        assert await connection.whole(LIMIT_S, 2**30) == b"hello"
        assert not connection.is_reusable


@pytest.mark.parametrize(
    "pieces",
    [
        [OK + b"Content-Length: 5\r\n\r\nhel", None],
        [OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n", None],
        [OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"],
    ],
    ids=["length", "chunks", "no chunk"],
)
async def test_a_body_that_ends_early_is_broken(pieces: list[bytes | None]) -> None:
    async with serving(pieces) as (server, pool):
        with pytest.raises(Broken):
            await (await ask(pool, server.url))[0].whole(LIMIT_S, 2**30)


@pytest.mark.parametrize(
    "piece", [None, b"nonsense\r\n\r\n", b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n"]
)
async def test_what_is_no_answer_is_broken(piece: bytes | None) -> None:
    async with serving([piece, None]) as (server, pool):
        with pytest.raises(Broken):
            await ask(pool, server.url)


async def test_a_head_that_says_that_more_is_coming_is_not_the_answer() -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    async with serving([early, WHOLE]) as (server, pool):
        connection, _ = await ask(pool, server.url)
        assert (connection.status, connection.headers["content-type"]) == (200, "a/b")
        assert await connection.whole(LIMIT_S, 2**30) == b"hello"


async def test_a_connection_is_not_used_again_when_its_engine_says_so() -> None:
    closes = WHOLE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    async with serving([closes], [WHOLE]) as (server, pool):
        for _ in range(2):
            connection, target = await ask(pool, server.url)
            await connection.whole(LIMIT_S, 2**30)
            pool.give(target, connection)
        assert server.connections == 2


async def test_a_connection_with_an_answer_to_nothing_is_dropped() -> None:
    async with serving([WHOLE, WHOLE], [WHOLE]) as (server, pool):
        connection, target = await ask(pool, server.url)
        assert await connection.whole(LIMIT_S, 2**30) == b"hello"
        pool.give(target, connection)
        async with asyncio.timeout(LIMIT_S):
            await server.ended.wait()
        again, _ = await ask(pool, server.url)
        assert again is not connection


async def test_an_answer_that_is_not_wanted_is_not_left_for_the_next_request() -> None:
    async with serving([OK + b"Content-Length: 5\r\n\r\nhel"], [WHOLE]) as (server, pool):
        connection, target = await ask(pool, server.url)
        pool.give(target, connection)
        again, _ = await ask(pool, server.url)
        assert again is not connection
        assert await again.whole(LIMIT_S, 2**30) == b"hello"


async def test_an_idle_connection_is_not_used_when_its_engine_may_be_closing_it() -> None:
    async with serving([WHOLE], [WHOLE]) as (server, _):
        pool = Pool(connect_s=LIMIT_S, idle_s=0)
        for _ in range(2):
            connection, target = await ask(pool, server.url)
            await connection.whole(LIMIT_S, 2**30)
            pool.give(target, connection)
        assert server.connections == 2
        pool.close()


async def test_an_engine_that_closes_an_idle_connection_leaves_nothing_behind() -> None:
    async with serving([WHOLE, None], [WHOLE]) as (server, pool):
        connection, target = await ask(pool, server.url)
        await connection.whole(LIMIT_S, 2**30)
        pool.give(target, connection)
        await eventually(lambda: not (pool._idle or pool._open))
        await ask(pool, server.url)
        assert server.connections == 2


async def test_an_answer_of_no_length_that_anybody_expected_breaks_off() -> None:
    async with serving([OK + b"Content-Length: 64\r\n\r\n", b"x" * 64]) as (server, pool):
        connection, _ = await ask(pool, server.url)
        with pytest.raises(Broken):
            await connection.whole(LIMIT_S, 63)


@pytest.mark.parametrize("piece", [b"X: " + b"a" * 2**19, b"\r\nHTTP/1.1 100 Continue\r\n" * 2**14])
async def test_a_head_without_an_end_breaks_off(piece: bytes) -> None:
    async with serving([b"HTTP/1.1 100 Continue\r\n", piece]) as (server, pool):
        with pytest.raises(Broken):
            await ask(pool, server.url)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
async def test_a_process_without_descriptors_blames_no_engine(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise OSError(number, "full")

    pool = Pool(connect_s=LIMIT_S, idle_s=60)
    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", refuse)
    with pytest.raises(NoRoom):
        await pool.take(target_of("http://127.0.0.1:1"))


Wait = Callable[[Connection], Awaitable[object]]


@pytest.mark.parametrize(
    "wait", [lambda one: one.read(0.01), lambda one: one.whole(0.01, 2**30)], ids=["read", "whole"]
)
async def test_a_silent_engine_is_late(wait: Wait) -> None:
    async with serving([OK + b"Content-Length: 5\r\n\r\n"]) as (server, pool):
        connection, _ = await ask(pool, server.url)
        with pytest.raises(TimeoutError):
            await wait(connection)


async def test_a_dropped_connection_ends_the_wait_for_it() -> None:
    async with serving([OK + b"Content-Length: 5\r\n\r\n"]) as (server, pool):
        connection, _ = await ask(pool, server.url)
        reading = asyncio.create_task(connection.read(LIMIT_S))
        await asyncio.sleep(0)
        connection.close()
        with pytest.raises(Broken):
            await reading


async def test_an_engine_waits_for_a_slow_reader() -> None:
    body = b"x" * 64 * 2**20
    frame = OK + b"Content-Length: %d\r\n\r\n" % len(body)
    async with serving([frame, body]) as (server, pool):
        connection, _ = await ask(pool, server.url)
        for _ in range(200):
            await asyncio.sleep(0)
        assert connection._held < 2**20
        assert len(await connection.whole(LIMIT_S, 2**30)) == len(body)


async def test_large_bodies_arrive_whole() -> None:
    async with serving([WHOLE]) as (server, pool):
        await ask(pool, server.url, b"y" * 8 * 2**20)
        assert server.requests[0].endswith(b"\r\n\r\n" + b"y" * 8 * 2**20)


async def test_no_connection_is_told_apart_from_a_broken_one() -> None:
    async with serving() as (server, pool):
        pass
    with pytest.raises(Unconnected):
        await pool.take(target_of(server.url))


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("http://10.0.0.4:8000", Target("10.0.0.4", 8000, False, "10.0.0.4:8000", "")),
        ("https://engine/base/", Target("engine", 443, True, "engine", "/base")),
        ("http://[::1]", Target("::1", 80, False, "[::1]", "")),
    ],
)
def test_a_base_url_is_taken_apart(url: str, target: Target) -> None:
    assert target_of(url) == target


@pytest.mark.parametrize("value", ["a\r\nb: c", "a\nb", "a\rb"])
def test_a_header_cannot_bring_another_one(value: str) -> None:
    with pytest.raises(ValueError, match="line end"):
        request_head("GET", target_of("http://a"), "/", {"x": value})
