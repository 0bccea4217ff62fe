"""A body that is passed on piece by piece, in the calls of the loop that bring it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from disaggpair_bed.fakes.enginetransport import END, answering, framed
from disaggpair_router.wire import Broken, Connection

LIMIT_S = 5.0


class Timer:
    """What a connection gets for `call_at`."""

    def __init__(self, when: float, call: Callable[[], object]) -> None:
        self._when = when
        self.call = call
        self.is_cancelled = False

    def when(self) -> float:
        return self._when

    def cancel(self) -> None:
        self.is_cancelled = True


class Loop:
    """A clock that the test moves, and the running loop's futures."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[Timer] = []
        self.create_future = asyncio.get_running_loop().create_future

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, call: Callable[[], object]) -> Timer:
        self.timers.append(Timer(when, call))
        return self.timers[-1]

    def move(self, seconds: float) -> None:
        """Let time pass; timers that are due are called."""
        self.now += seconds
        due = [one for one in self.timers if one.when() <= self.now and not one.is_cancelled]
        self.timers = [one for one in self.timers if one not in due]
        for one in due:
            one.call()


@pytest.fixture
async def connection() -> Connection:
    """One whose answer has begun."""
    return answering(b"Transfer-Encoding: chunked\r\n")


class Taken(list[bytes]):
    """Takes pieces until it has so many."""

    def __init__(self, wanted: int = 1_000) -> None:
        super().__init__()
        self.wanted = wanted

    def __call__(self, piece: bytes) -> bool:
        self.append(piece)
        return len(self) < self.wanted


async def begun(connection: Connection, take: Callable[[bytes], bool]) -> "asyncio.Task[bool]":
    task = asyncio.create_task(connection.each(take, LIMIT_S))
    await asyncio.sleep(0)
    return task


async def test_a_piece_is_taken_in_the_call_that_brings_it(connection: Connection) -> None:
    taken = Taken()
    task = await begun(connection, taken)
    for piece in (b"one", b"two"):
        connection.data_received(framed(piece))
        assert taken[-1] == piece
        await asyncio.sleep(0)
        assert not task.done()
    connection.data_received(END)
    assert await task is False
    assert connection.is_reusable


async def test_what_came_before_is_taken_first(connection: Connection) -> None:
    taken = Taken()
    connection.data_received(framed(b"one") + framed(b"two"))
    task = await begun(connection, taken)
    assert taken == [b"onetwo"]
    connection.data_received(framed(b"three") + END)
    assert await task is False
    assert taken == [b"onetwo", b"three"]


@pytest.mark.parametrize("size", [1, 2, 5, 1_000])
async def test_the_pieces_are_the_body_however_the_network_cuts_it(
    connection: Connection, size: int
) -> None:
    body = [b"he", b"l" * 300, b"o"]
    data = b"".join(map(framed, body)) + END
    taken = Taken()
    task = await begun(connection, taken)
    for start in range(0, len(data), size):
        connection.data_received(data[start : start + size])
    assert await task is False
    assert b"".join(taken) == b"".join(body)


async def test_a_taker_that_wants_no_more_leaves_the_rest(connection: Connection) -> None:
    taken = Taken(wanted=1)
    task = await begun(connection, taken)
    connection.data_received(framed(b"one"))
    connection.data_received(framed(b"two"))
    assert await task is True
    connection.data_received(framed(b"three") + END)
    assert taken == [b"one"]
    assert await connection.read(LIMIT_S) == b"twothree"
    assert await connection.read(LIMIT_S) == b""


async def test_a_taker_that_wants_no_more_than_what_had_come_waits_for_nothing(
    connection: Connection,
) -> None:
    connection.data_received(framed(b"one"))
    assert await connection.each(Taken(wanted=1), LIMIT_S) is True


async def test_after_the_body_nothing_is_taken(connection: Connection) -> None:
    connection.data_received(END)
    assert await connection.each(Taken(), LIMIT_S) is False


@pytest.mark.parametrize("broken", [b"zz\r\n", None], ids=["no chunk", "end"])
async def test_a_body_that_ends_early_is_broken_after_its_last_piece(
    connection: Connection, broken: bytes | None
) -> None:
    taken = Taken()
    task = await begun(connection, taken)
    connection.data_received(framed(b"one"))
    if broken is None:
        connection.connection_lost(None)
    else:
        connection.data_received(framed(b"two") + broken)
    with pytest.raises(Broken):
        await task
    assert taken == ([b"one"] if broken is None else [b"one", b"two"])


async def test_what_a_taker_raises_is_raised_where_the_body_is_waited_for(
    connection: Connection,
) -> None:
    def take(_: bytes) -> bool:
        raise ZeroDivisionError

    task = await begun(connection, take)
    connection.data_received(framed(b"one"))
    connection.data_received(framed(b"two"))
    with pytest.raises(ZeroDivisionError):
        await task
    assert await connection.read(LIMIT_S) == b"two"
    connection.data_received(framed(b"three"))
    with pytest.raises(ZeroDivisionError):
        await connection.each(take, LIMIT_S)


async def test_a_taker_may_drop_the_connection(connection: Connection) -> None:
    def take(_: bytes) -> bool:
        connection.close()
        return True

    task = await begun(connection, take)
    connection.data_received(framed(b"one"))
    with pytest.raises(Broken):
        await task
    assert not connection.is_reusable


async def test_who_waits_no_more_takes_no_more(connection: Connection) -> None:
    taken = Taken()
    task = await begun(connection, taken)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    connection.data_received(framed(b"one"))
    assert taken == []
    assert await connection.read(LIMIT_S) == b"one"


async def test_who_was_told_to_wait_no_more_takes_no_more(connection: Connection) -> None:
    taken = Taken()
    task = await begun(connection, taken)
    task.cancel()
    connection.data_received(framed(b"one"))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert taken == []


async def test_the_limit_is_for_each_piece(connection: Connection) -> None:
    clock = Loop()
    connection._loop = clock  # type: ignore[assignment]  # what a connection uses of a loop
    task = await begun(connection, Taken())
    for _ in range(5):
        clock.move(LIMIT_S - 1)
        connection.data_received(framed(b"one"))
    await asyncio.sleep(0)
    assert not task.done()
    clock.move(LIMIT_S - 1)
    await asyncio.sleep(0)
    assert not task.done()
    clock.move(1)
    with pytest.raises(TimeoutError):
        await task


async def test_an_engine_is_held_up_only_while_nobody_takes(connection: Connection) -> None:
    transport: Any = connection._transport
    large = framed(b"x" * 2**18 + b"y")
    task = await begun(connection, Taken(wanted=2))
    connection.data_received(large)
    assert not transport.is_paused
    connection.data_received(large)
    assert await task is True
    connection.data_received(large)
    assert transport.is_paused
    again = await begun(connection, Taken())
    assert not transport.is_paused
    connection.data_received(END)
    assert await again is False


async def test_a_whole_answer_that_nobody_read_holds_up_no_other_request(
    connection: Connection,
) -> None:
    task = await begun(connection, Taken(wanted=1))
    connection.data_received(framed(b"one"))
    connection.data_received(framed(b"x" * 2**18 + b"y") + END)
    assert await task is True
    transport: Any = connection._transport
    assert transport.is_paused
    assert not connection.is_reusable
    assert len(await connection.read(LIMIT_S)) == 2**18 + 1
    assert connection.is_reusable
