"""Sends one request to a router and says what came back."""

import asyncio
import io
import time
from dataclasses import dataclass
from typing import Any, Final, Literal

import aiohttp
import orjson

from disaggpair_bed.chaos.talk import Shot
from disaggpair_bed.chaos.truth import Said, of_chunks, of_whole

Outcome = Literal["answered", "error", "broken", "cut", "left", "silent", "odd"]
"""All of an answer; an error with a status; a stream that ends in an error event; a connection that
broke; the client left; nothing within the deadline; what no client could understand."""

_SLOW_S: Final = 0.02
_LEAVE_S: Final = 0.05
"""After which a client leaves that is to leave before the first piece."""


@dataclass(frozen=True)
class Came:
    """What came back."""

    outcome: Outcome
    seconds: float
    said: tuple[Said, ...] = ()
    """What was said until it ended or broke off."""
    status: int = 0
    code: str = ""
    """`error.code` of an error."""


class Client:
    """One session with many routers.

    Args:
        deadline_s: after which a request counts as silent.
    """

    def __init__(self, session: aiohttp.ClientSession, deadline_s: float) -> None:
        self._session = session
        self._deadline_s = deadline_s

    async def send(self, url: str, shot: Shot) -> Came:
        """One request."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._deadline_s):
                outcome, said, status, code = await self._send(url, shot)
        except TimeoutError:
            outcome, said, status, code = "silent", (), 0, ""
        except aiohttp.ClientError:
            outcome, said, status, code = "cut", (), 0, ""
        return Came(outcome, time.monotonic() - began, said, status, code)

    async def _send(self, url: str, shot: Shot) -> tuple[Outcome, tuple[Said, ...], int, str]:
        request = self._session.post(
            url + shot.path, data=io.BytesIO(orjson.dumps(shot.body)), headers=shot.headers
        )
        if shot.manner == "leave" and not shot.after:
            try:
                async with asyncio.timeout(_LEAVE_S), request:
                    return "left", (), 0, ""
            except TimeoutError:
                return "left", (), 0, ""
        async with request as response:
            raw, has_left = await _read(response, shot)
        if has_left:
            return "left", (), response.status, ""
        if response.status != 200:
            return "error", (), response.status, _code(raw)
        if not shot.body["stream"]:
            return "answered", of_whole(orjson.loads(raw)), 200, ""
        return _stream(raw)


async def _read(response: aiohttp.ClientResponse, shot: Shot) -> tuple[bytes, bool]:
    """The body, and whether the client left before its end."""
    raw = b""
    pieces = 0
    while piece := await response.content.readany():
        raw += piece
        pieces += 1
        if shot.manner == "leave" and pieces >= shot.after:
            response.close()
            return raw, True
        if shot.manner == "slow":
            await asyncio.sleep(_SLOW_S)
    return raw, False


def _stream(raw: bytes) -> tuple[Outcome, tuple[Said, ...], int, str]:
    chunks: list[Any] = []
    code, is_done = "", False
    for event in raw.replace(b"\r\n", b"\n").split(b"\n\n"):
        lines = [line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:")]
        data = b"\n".join(lines)
        if data == b"[DONE]":
            is_done = True
        elif data:
            try:
                chunk = orjson.loads(data)
            except orjson.JSONDecodeError:
                continue  # an engine's own broken chunk; what follows it counts
            code = code or (chunk.get("error") or {}).get("code", "")
            chunks.append(chunk)
    said = of_chunks(chunks)
    if code:
        return ("odd" if is_done else "broken"), said, 200, code
    return ("answered" if is_done else "cut"), said, 200, ""


def _code(raw: bytes) -> str:
    try:
        error = orjson.loads(raw)["error"]
        return str(error["code"]) if error["request_id"] else ""
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return ""
