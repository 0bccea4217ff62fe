"""D's stream on its way to a client that leaves, is slow, or is told to wait no more."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest

from disaggpair_bed.fakes.enginetransport import END, answering, framed
from disaggpair_router.apis.completions import CompletionStream
from disaggpair_router.client import Cut
from disaggpair_router.decodestream import DecodeStream
from disaggpair_router.errors import ClientLeft, EngineFailed, EngineRefused
from disaggpair_router.plan import FixedPlan
from disaggpair_router.relay import StreamRelay
from disaggpair_router.upstream import Reply

CHUNKED = b"Transfer-Encoding: chunked\r\n"
CLOSING = b"Connection: close\r\n"
DONE = b"data: [DONE]\n\n"


def event(text: str, **fields: Any) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return b"data: " + orjson.dumps({"choices": [choice], **fields}) + b"\n\n"


def failure(code: int) -> bytes:
    return b"data: " + orjson.dumps({"error": {"code": code, "message": "m"}}) + b"\n\n"


HANDLE = event("a", kv_transfer_params={"remote_engine_id": "e"})


@dataclass
class SomeClient:
    """Takes everything, until it leaves or is made slow."""

    is_gone: bool = False
    is_slow: bool = False
    has_begun: bool = False
    got: list[bytes] = field(default_factory=list)
    has_end: bool = False
    cut: Cut | None = None
    resumed: asyncio.Event = field(default_factory=asyncio.Event)

    def send(self, data: bytes, *, last: bool = False) -> bool:
        self.got.append(data)
        self.has_end = last
        return self.is_slow

    async def drained(self) -> None:
        if self.is_slow:
            await self.resumed.wait()

    def when_gone(self, cut: Cut | None) -> None:
        self.cut = cut
        if self.is_gone and cut is not None:
            cut()

    def leave(self) -> None:
        self.is_gone = True
        if self.cut is not None:
            self.cut()


class Record:
    """Notes the order of what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def answered(self) -> None:
        if "answered" not in self.told:
            self.told.append("answered")

    def first_byte(self) -> None:
        self.told.append("first_byte")

    def delivered(self) -> None:
        self.told.append("delivered")


class Scene:
    """One stream that is being passed on."""

    def __init__(self, framing: bytes = CHUNKED, max_event_bytes: int = 2**20) -> None:
        self.connection = answering(framing)
        self._is_chunked = framing == CHUNKED
        self.client = SomeClient()
        self.record = Record()
        self.kept: list[object] = []
        self.relay = StreamRelay(
            CompletionStream(), max_event_bytes=max_event_bytes, max_answer_bytes=2**20
        )
        record: Any = self.record
        stream = DecodeStream(
            self.relay,
            Reply(self.connection),
            self.client,
            record=record,
            plan=FixedPlan(),
            keep=lambda: self.kept.append(self.relay.params),
        )
        self.task = asyncio.create_task(stream.run(5, 5))

    def say(self, *events: bytes, end: bool = False) -> None:
        """D says this in one read."""
        data = b"".join(events)
        if self._is_chunked:
            data = framed(data) if data else b""
            data += END if end else b""
        self.connection.data_received(data)

    async def settle(self) -> None:
        """Let everybody do what is due."""
        for _ in range(5):
            await asyncio.sleep(0)

    async def begin(self) -> None:
        """The client has its first event."""
        await self.settle()
        self.say(event("he"))
        await self.settle()


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    one = Scene()
    await one.settle()
    yield one
    one.task.cancel()
    await asyncio.wait([one.task])


async def left(scene: Scene) -> str:
    with pytest.raises(ClientLeft) as caught:
        await scene.task
    return caught.value.stage


async def test_a_stream_is_passed_on_whole(scene: Scene) -> None:
    await scene.begin()
    scene.say(event("llo"), HANDLE)
    scene.say(DONE, end=True)
    await scene.task
    assert b"".join(scene.client.got).count(b"data: ") == 4
    assert scene.client.has_end
    assert scene.kept == [{"remote_engine_id": "e"}]
    assert scene.record.told == ["answered", "first_byte", "delivered"]
    assert scene.client.cut is None


@pytest.mark.parametrize("framing", [CHUNKED, CLOSING], ids=["chunks", "close"])
async def test_a_client_that_leaves_in_the_middle_ends_the_stream(framing: bytes) -> None:
    scene = Scene(framing)
    await scene.begin()
    scene.client.leave()
    assert await left(scene) == "stream"
    assert not scene.connection.is_reusable


@pytest.mark.parametrize("framing", [CHUNKED, CLOSING], ids=["chunks", "close"])
async def test_a_client_that_left_before_an_empty_answer_is_no_failure(framing: bytes) -> None:
    scene = Scene(framing)
    await scene.settle()
    scene.client.leave()
    if framing == CHUNKED:
        scene.say(end=True)
    else:
        scene.connection.connection_lost(None)
    assert await left(scene) == "decode"
    assert scene.record.told == []


async def test_a_client_that_left_before_the_first_piece_gets_nothing(scene: Scene) -> None:
    scene.client.leave()
    await scene.settle()
    assert not scene.task.done()  # D may be reading from P
    scene.say(event("he"))
    assert await left(scene) == "decode"
    assert scene.client.got == []
    assert scene.record.told == []


async def test_a_handle_that_has_come_is_waited_for_without_a_client(scene: Scene) -> None:
    await scene.begin()
    scene.say(HANDLE)
    scene.client.leave()
    scene.say(event("b"), DONE, end=True)
    await scene.task
    assert scene.kept == [{"remote_engine_id": "e"}]


async def test_a_client_that_leaves_right_after_the_end_marker_is_served(scene: Scene) -> None:
    await scene.begin()
    scene.say(event("llo"), DONE)
    scene.client.leave()
    await scene.task
    assert scene.kept == [None]
    assert not scene.connection._is_lost


async def test_a_slow_client_holds_up_the_stream_and_gets_all_of_it(scene: Scene) -> None:
    await scene.begin()
    scene.client.is_slow = True
    scene.say(event("b"))
    await scene.settle()
    scene.say(event("c"))
    scene.say(event("d"), DONE, end=True)
    await scene.settle()
    assert len(scene.client.got) == 2
    scene.client.is_slow = False
    scene.client.resumed.set()
    await scene.task
    assert [data.count(b"data: ") for data in scene.client.got] == [1, 1, 3]


async def test_a_turn_that_is_cut_sends_nothing_more(scene: Scene) -> None:
    await scene.begin()
    scene.task.cancel()
    scene.say(event("llo"), HANDLE, DONE)
    with pytest.raises(asyncio.CancelledError):
        await scene.task
    assert len(scene.client.got) == 1
    assert scene.kept == []


@pytest.mark.parametrize(("code", "kind"), [(400, EngineRefused), (500, EngineFailed)])
async def test_what_comes_before_an_error_is_sent(
    scene: Scene, code: int, kind: type[Exception]
) -> None:
    await scene.begin()
    scene.say(event("llo"), failure(code), event("more"), DONE, end=True)
    with pytest.raises(kind):
        await scene.task
    assert [data.count(b"data: ") for data in scene.client.got] == [1, 1]
    assert not scene.client.has_end


async def test_an_error_of_d_is_told_although_the_client_left_after_the_handle(
    scene: Scene,
) -> None:
    await scene.begin()
    scene.say(HANDLE)
    scene.client.leave()
    scene.say(failure(500))
    with pytest.raises(EngineFailed):
        await scene.task


async def test_an_event_without_an_end_is_a_failure_of_d() -> None:
    scene = Scene(max_event_bytes=1_000)
    await scene.begin()
    scene.say(b"data: " + b"x" * 2_000)
    with pytest.raises(EngineFailed, match="without an end"):
        await scene.task


async def test_a_stream_without_an_end_marker_is_a_failure_of_d(scene: Scene) -> None:
    await scene.begin()
    scene.say(end=True)
    with pytest.raises(EngineFailed, match="before its end marker"):
        await scene.task


async def test_a_first_piece_that_is_no_event_yet_begins_nothing(scene: Scene) -> None:
    whole = event("he")
    scene.say(whole[:10])
    await scene.settle()
    assert scene.client.got == []
    scene.say(whole[10:])
    assert scene.client.got == [whole]
    assert scene.record.told == ["answered", "first_byte", "delivered"]
