"""Whatever bytes a client puts into ids and keys, none of them reach a log or another header."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disaggpair_bed.fakes.upstream import (
    ScriptedEngine,
    decode_handle,
    decoding,
    prefilling,
    scripted_engine,
)
from disaggpair_bed.routing import Routed, routed
from disaggpair_router.turnlog import LineFormatter

# What follows a marker is drawn; the marker shows where the value went. A line break would end
# the header and begin one that the client may as well have sent.
TAIL = st.binary(max_size=12).map(lambda raw: raw.translate(None, b"\r\n"))
TEXT = st.text(max_size=12)


@dataclass
class Served:
    """A router with its engines on a loop that the test drives."""

    front: Routed
    engines: list[ScriptedEngine]
    loop: asyncio.AbstractEventLoop

    def send(self, headers: dict[str, bytes], body: Any = None) -> tuple[int, bytes]:
        """Status and head of the answer to one turn."""
        return self.loop.run_until_complete(self._send(headers, body or {}))

    async def _send(self, headers: dict[str, bytes], body: dict[str, Any]) -> tuple[int, bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.front.router.port)
        raw = orjson.dumps({"messages": [{"role": "user", "content": "a"}], **body})
        head = b"".join(name.encode() + b": " + value + b"\r\n" for name, value in headers.items())
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: router\r\nConnection: close\r\n"
            b"Content-Length: %d\r\n%s\r\n%s" % (len(raw), head, raw)
        )
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        top = answer.partition(b"\r\n\r\n")[0]
        return int(top.split(b" ")[1]), top

    @property
    def seen(self) -> str:
        """Every header that reached an engine."""
        requests = [one for engine in self.engines for one in engine.requests]
        return repr([dict(one.headers) for one in requests])


class Lines(logging.Handler):
    """Keeps all lines as the process would write them."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(LineFormatter("human"))
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text += self.format(record) + "\n"


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def start() -> Served:
            prefill = await stack.enter_async_context(scripted_engine(prefilling()))
            decode = await stack.enter_async_context(scripted_engine(decoding(**decode_handle())))
            front = await stack.enter_async_context(routed([prefill], [decode]))
            return Served(front, [prefill, decode], asyncio.get_running_loop())

        yield runner.run(start())
        runner.run(stack.aclose())


@pytest.fixture(scope="module")
def lines() -> Iterator[Lines]:
    handler, root = Lines(), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield handler
    root.removeHandler(handler)
    root.setLevel(level)


def is_printable(raw: bytes) -> bool:
    return all(b" "[0] <= byte <= b"~"[0] for byte in raw)


@settings(max_examples=60)
@given(name=st.sampled_from(["X-Conversation-Id", "X-Session-Id"]), tail=TAIL)
def test_h80_an_id_of_any_bytes_shows_only_in_the_reply_and_only_when_printable(
    served: Served, lines: Lines, name: str, tail: bytes
) -> None:
    status, head = served.send({name: b"idmark" + tail})
    kept = tail.rstrip(b" \t")  # the server takes white space off the ends of a value
    assert status == 200 if is_printable(kept) else status in (200, 400)
    assert (b"idmark" in head) == (status == 200 and is_printable(kept))
    assert is_printable(head.translate(None, b"\r\n"))
    assert "idmark" not in lines.text + served.seen


@settings(max_examples=60)
@given(tail=TEXT)
def test_h80_an_id_of_any_text_in_the_body_breaks_no_header(
    served: Served, lines: Lines, tail: str
) -> None:
    status, head = served.send({}, {"conversation_id": "idmark" + tail})
    assert status in (200, 400)
    printable = tail.isascii() and tail.isprintable()
    assert (b"idmark" in head) == (status == 200 and printable)
    assert is_printable(head.translate(None, b"\r\n"))
    assert "idmark" not in lines.text + served.seen


@settings(max_examples=60)
@given(tail=TAIL)
def test_h87_a_request_id_of_any_bytes_is_logged_only_when_visible(
    served: Served, lines: Lines, tail: bytes
) -> None:
    before = len(lines.text)
    status, head = served.send({"X-Request-Id": b"reqmark" + tail})
    # The server takes white space off the ends of a value.
    kept = tail.rstrip(b" \t")
    visible = is_printable(kept) and b" " not in kept
    assert (b"reqmark" in head) == (status == 200 and visible)
    assert ("reqmark" in lines.text[before:]) == (status == 200 and visible)
    assert "reqmark" not in served.seen


@settings(max_examples=60)
@given(name=st.sampled_from(["Authorization", "X-Api-Key"]), tail=TAIL)
def test_h89_a_key_of_any_bytes_is_never_logged_or_given_back(
    served: Served, lines: Lines, name: str, tail: bytes
) -> None:
    status, head = served.send({name: b"Bearer keymark" + tail})
    assert status == (200 if is_printable(tail.rstrip(b" \t")) else 400)
    assert b"keymark" not in head
    assert "keymark" not in lines.text
