"""HTTP to the lease listeners of decode engines. Thin: what an answer means is `rows`' to say.

A listener answers within milliseconds, so every request but list and watch has a short limit: a
turn must not wait long for what only saves time.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Final, Literal, TypeVar
from urllib.parse import urlsplit

import aiohttp
import orjson
from aiohttp.http_exceptions import HttpProcessingError

from disaggpair_router.leases.rows import (
    Event,
    Listing,
    Malformed,
    parse_claimed,
    parse_event,
    parse_listing,
)

T = TypeVar("T")
Purpose = Literal["read", "direct"]

_LIST_S: Final = 30.0
_WATCH_S: Final = 60
"""How long an engine keeps a watch open."""
_SILENCE_S: Final = 20.0
"""A watch without an event or a bookmark for so long is dead: bookmarks come every 5 s."""
_MAX_LIST_BYTES: Final = 256 * 2**20
_MAX_ANSWER_BYTES: Final = 8 * 2**20
_MAX_LINE_BYTES: Final = 64 * 1024

Refusal = Literal["gone", "claimed", "unreachable"]


class ListenerError(Exception):
    """A lease listener did not do what it was asked.

    `gone`: there is no such lease or epoch any more; `claimed`: another has it; `unreachable`: no
    usable answer, whatever the cause.
    """

    def __init__(self, reason: Refusal, message: str) -> None:
        super().__init__(message)
        self.reason: Refusal = reason


class LeaseClient:
    """Client of all listeners, from `start` to `close`.

    Args:
        key: bearer key of the listeners.
        claim_s: limit of a claim or a release.
    """

    def __init__(self, *, key: str, claim_s: float) -> None:
        self._headers = {"Authorization": f"Bearer {key}"}
        self._claim_s = claim_s

    async def start(self) -> None:
        """Open the session inside the running loop."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=15),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=2.0),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("Accept-Encoding", "User-Agent"),
            read_bufsize=_MAX_LINE_BYTES,
        )

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()

    async def listing(self, listener: str) -> Listing:
        """All leases of an engine; ListenerError when they cannot be had."""
        body = await self._ask("GET", f"{listener}/leases", limit_s=_LIST_S, most=_MAX_LIST_BYTES)
        # A hundred thousand rows take longer to read than a turn may wait.
        return await asyncio.to_thread(_read, parse_listing, body)

    async def watch(self, listener: str, epoch: str, since: int) -> AsyncGenerator[Event]:
        """Events after `since`, until the engine ends the watch in order.

        Raises:
            ListenerError: `gone` when the list has to be read anew.
        """
        query = {"epoch": epoch, "since": str(since), "timeout": str(_WATCH_S)}
        url = f"{listener}/leases/watch"
        try:
            async with self._session.get(
                url,
                params=query,
                headers=self._headers,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=2.0, sock_read=_SILENCE_S),
            ) as response:
                if response.status != 200:
                    raise _refused(response.status)
                async for line in response.content:
                    yield _read(parse_event, line)
        except (aiohttp.ClientError, HttpProcessingError, TimeoutError):
            raise ListenerError("unreachable", "the watch broke off") from None

    async def claim(self, listener: str, lease: str, purpose: Purpose) -> Mapping[str, Any]:
        """Take a lease; its parameters. ListenerError when another has it, or nobody."""
        body = await self._ask(
            "POST", f"{listener}/leases/{lease}/claim", orjson.dumps({"for": purpose})
        )
        return _read(parse_claimed, body)

    async def release(self, listener: str, lease: str) -> None:
        """End a lease; ListenerError when there is none or it is being read."""
        await self._ask("DELETE", f"{listener}/leases/{lease}")

    async def _ask(
        self,
        method: str,
        url: str,
        data: bytes | None = None,
        *,
        limit_s: float | None = None,
        most: int = _MAX_ANSWER_BYTES,
    ) -> bytes:
        headers = {**self._headers, **({"Content-Type": "application/json"} if data else {})}
        try:
            async with (
                asyncio.timeout(self._claim_s if limit_s is None else limit_s),
                self._session.request(
                    method, url, data=data, headers=headers, allow_redirects=False
                ) as response,
            ):
                if response.status not in (200, 204):
                    raise _refused(response.status)
                body = await response.content.read(most + 1)
                while len(body) <= most and (more := await response.content.read(most + 1)):
                    body += more
        except (aiohttp.ClientError, TimeoutError):
            raise ListenerError("unreachable", "the lease listener did not answer") from None
        if len(body) > most:
            raise ListenerError("unreachable", "the lease listener's answer is too long")
        return body


def listener_of(engine_url: str, port: int) -> str:
    """Base URL of the lease listener beside an engine's API."""
    host = urlsplit(engine_url).hostname or ""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _read(parse: Callable[[bytes], T], body: bytes) -> T:
    try:
        return parse(body)
    except Malformed as error:
        message = f"the lease listener's answer is wrong: {error}"
        raise ListenerError("unreachable", message) from None


def _refused(status: int) -> ListenerError:
    if status in (404, 410):
        return ListenerError("gone", "there is no such lease")
    if status == 409:
        return ListenerError("claimed", "another has the lease")
    if status in (401, 403):
        return ListenerError(
            "unreachable", "the lease listener refuses our key: is DISAGGPAIR_LEASE_KEY the same?"
        )
    return ListenerError("unreachable", f"the lease listener answered {status}")
