import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from disaggpair_bed.node.endpoint import parse_query
from disaggpair_bed.node.logs import ContainerLog, LogQuery, read_log, select, tail_text

LINES = [
    b"2026-01-01T00:00:00.000000000Z stdout F one",
    b"2026-01-01T00:00:10.000000000Z stdout P tw",
    b"2026-01-01T00:00:10.000000000Z stdout F o",
    b"2026-01-01T00:00:20.000000000Z stdout F three",
]


async def text(log: ContainerLog, query: LogQuery) -> bytes:
    return b"".join([piece async for piece in read_log(log, query)])


def test_pieces_of_a_line_are_joined() -> None:
    assert b"".join(select(LINES, LogQuery())) == b"one\ntwo\nthree\n"


def test_tail_since_and_timestamps_choose_lines() -> None:
    since = datetime(2026, 1, 1, 0, 0, 10, tzinfo=UTC)
    assert select(LINES, LogQuery(tail_lines=1)) == [b"three\n"]
    assert select(LINES, LogQuery(tail_lines=0)) == []
    assert select(LINES, LogQuery(since=since)) == [b"tw", b"o\n", b"three\n"]
    assert select(LINES[:1], LogQuery(timestamps=True)) == [b"2026-01-01T00:00:00.000000000Z one\n"]


async def test_what_was_fed_is_read_back(tmp_path: Path) -> None:
    log = ContainerLog(tmp_path / "log")
    log.feed(b"a\nb")
    log.feed(b"c\nrest")
    assert await text(log, LogQuery()) == b"a\nbc\n"
    log.close()
    assert await text(log, LogQuery()) == b"a\nbc\nrest\n"
    assert await text(log, LogQuery(limit_bytes=3)) == b"a\nb"


async def test_a_line_of_any_length_survives(tmp_path: Path) -> None:
    log = ContainerLog(tmp_path / "log")
    line = bytes(range(65, 91)) * 10_000
    for at in range(0, len(line), 65_536):
        log.feed(line[at : at + 65_536])
    log.feed(b"\n")
    log.close()
    assert await text(log, LogQuery()) == line + b"\n"


async def test_a_follower_gets_new_lines_until_the_container_ends(tmp_path: Path) -> None:
    log = ContainerLog(tmp_path / "log")
    log.feed(b"first\n")
    pieces: asyncio.Queue[bytes] = asyncio.Queue()

    async def follow() -> None:
        async for piece in read_log(log, LogQuery(follow=True)):
            pieces.put_nowait(piece)

    async with asyncio.timeout(10):
        task = asyncio.create_task(follow())
        assert await pieces.get() == b"first\n"
        log.feed(b"second\n")
        assert await pieces.get() == b"second\n"
        log.close()
        await task


async def test_a_follower_of_tail_lines_gets_every_later_line(tmp_path: Path) -> None:
    log = ContainerLog(tmp_path / "log")
    log.feed(b"1\n2\n3\n")
    async with asyncio.timeout(10):
        pieces = read_log(log, LogQuery(follow=True, tail_lines=1))
        assert await anext(pieces) == b"3\n"
        log.feed(b"4\n5\n")
        log.close()
        assert [piece async for piece in pieces] == [b"4\n5\n"]


async def test_the_end_of_a_log_serves_as_a_message(tmp_path: Path) -> None:
    log = ContainerLog(tmp_path / "log")
    log.feed(b"".join(b"line %d\n" % i for i in range(200)))
    log.close()
    message = tail_text(log.path)
    assert message.endswith("line 198\nline 199\n")
    assert message.startswith("line 120\n")
    assert tail_text(tmp_path / "none") == ""


def test_options_of_a_request_are_read() -> None:
    now = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
    query = parse_query({"follow": "true", "tailLines": "5", "sinceSeconds": "60"}, now)
    assert query == LogQuery(follow=True, tail_lines=5, since=datetime(2026, 1, 1, tzinfo=UTC))
    with pytest.raises(ValueError, match="tailLines is '-1'"):
        parse_query({"tailLines": "-1"}, now)
