"""HTTP to the engines. One session for all requests; every failure becomes one of our errors.

`turn` and its legs call this; nothing above it imports the HTTP client.
"""

import asyncio
import io
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

import aiohttp
import orjson

from disaggpair_router.errors import (
    EngineBusy,
    EngineFailed,
    EngineRefused,
    EngineTimeout,
    Unreachable,
    Unsendable,
    public_message,
)
from disaggpair_router.pick import Endpoint

_ERROR_LIMIT = 64 * 1024
_LARGE = 2**20
_IDLE_S = 3.0
"""Idle connections are dropped before the engine's server does it after 5 s: a request that meets
the close would be lost, and one that carried a handle cannot be repeated."""


class Reply:
    """An engine's successful answer, read as it comes. `read` must not be called concurrently."""

    def __init__(self, response: aiohttp.ClientResponse, limit: asyncio.Timeout) -> None:
        self._response = response
        self._limit = limit

    @property
    def is_stream(self) -> bool:
        """Whether the body is a stream of events."""
        return self._response.content_type == "text/event-stream"

    async def read(self, limit_s: float) -> bytes:
        """The next bytes, empty at the end; EngineFailed when they do not come or break off."""
        self._reschedule(limit_s)
        try:
            return await self._response.content.readany()
        except aiohttp.ClientError:
            raise EngineFailed("The engine broke off its answer.") from None
        finally:
            # The time a slow client takes is not the engine's.
            self._reschedule(None)

    async def whole(self, limit_s: float) -> bytes:
        """The rest of the body."""
        self._reschedule(limit_s)
        try:
            return await self._response.read()
        except aiohttp.ClientError:
            raise EngineFailed("The engine broke off its answer.") from None

    def close(self) -> None:
        """Drop the connection, which aborts the request at the engine."""
        self._response.close()

    def _reschedule(self, limit_s: float | None) -> None:
        if not self._limit.expired():
            self._limit.reschedule(
                None if limit_s is None else asyncio.get_running_loop().time() + limit_s
            )


class Engines:
    """Client of all engines. Use as an async context manager.

    `own_key` says that engines see no key of a client's, so that their 401 and 403 are no fault of
    the client's either.
    """

    def __init__(self, *, connect_s: float, own_key: bool = False) -> None:
        self._own_key = own_key
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_s)

    async def __aenter__(self) -> Self:
        """Open the session inside the running loop."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_S),
            timeout=self._timeout,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("Accept-Encoding", "User-Agent"),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close every connection."""
        await self._session.close()

    @asynccontextmanager
    async def post(
        self,
        endpoint: Endpoint,
        path: str,
        body: Mapping[str, Any],
        headers: Mapping[str, str],
        *,
        limit_s: float,
    ) -> AsyncIterator[Reply]:
        """Send one leg and wait at most `limit_s` for the answer's headers.

        The request id is new for every call: the engine builds `remote_request_id` from it, by
        which blocks are freed, so it must be unique and not guessable. Raises Unsendable before
        anything is sent, and ClientError or EngineFailed for every answer but 200, also from
        inside the block.
        """
        raw = _serialized(body)
        sent = {
            **headers,
            "Content-Type": "application/json",
            "X-Request-Id": secrets.token_hex(16),
        }
        data = raw if len(raw) <= _LARGE else io.BytesIO(raw)
        try:
            async with (
                asyncio.timeout(limit_s) as limit,
                self._session.post(
                    endpoint.url + path, data=data, headers=sent, allow_redirects=False
                ) as response,
            ):
                if response.status != 200:
                    raise await self._refusal(response)
                yield Reply(response, limit)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            raise Unreachable("The engine cannot be reached.") from None
        except TimeoutError:
            raise EngineTimeout("The engine did not answer in time.") from None
        except aiohttp.ClientError:
            raise EngineFailed("The connection to the engine broke.") from None

    async def get(self, endpoint: Endpoint, path: str, headers: Mapping[str, str]) -> bytes:
        """The body of a small resource; raises as `post` does."""
        try:
            async with (
                asyncio.timeout(self._timeout.sock_connect),
                self._session.get(
                    endpoint.url + path, headers=dict(headers), allow_redirects=False
                ) as response,
            ):
                if response.status != 200:
                    raise await self._refusal(response)
                return await response.read()
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            raise Unreachable("The engine cannot be reached.") from None
        except TimeoutError:
            raise EngineTimeout("The engine did not answer in time.") from None
        except aiohttp.ClientError:
            raise EngineFailed("The connection to the engine broke.") from None

    async def _refusal(self, response: aiohttp.ClientResponse) -> EngineRefused | EngineFailed:
        """An error for an answer that is not a success."""
        retry_after_s = _seconds(response.headers.get("Retry-After"))
        if response.status == 503:
            return EngineBusy("The engine is busy.", retry_after_s=retry_after_s or 1)
        if response.status in (401, 403) and self._own_key:
            return EngineFailed("The engine refused this router.")
        if not 400 <= response.status < 500:
            return EngineFailed("The engine failed to serve the request.")
        try:
            message = _message(orjson.loads(await response.content.read(_ERROR_LIMIT)))
        except (orjson.JSONDecodeError, aiohttp.ClientError):
            message = ""
        return EngineRefused(
            response.status,
            public_message(message) or "The engine refused the request.",
            retry_after_s=retry_after_s,
        )


def _serialized(body: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(body)
    except orjson.JSONEncodeError:
        raise Unsendable("The body is nested too deeply.") from None


def error_in_stream(error: Mapping[str, Any]) -> EngineRefused | EngineFailed:
    """An error for an engine's error event."""
    code = error.get("code")
    if isinstance(code, int) and 400 <= code < 500:
        message = public_message(_message({"error": error}))
        return EngineRefused(code, message or "The engine refused the request.")
    return EngineFailed("The engine failed to serve the request.")


def _message(answer: object) -> str:
    # {"error": {"message": ...}} since vLLM 0.10; {"message": ...} and {"detail": ...} are
    # what older servers and the web framework itself send.
    found = answer.get("error", answer) if isinstance(answer, dict) else None
    if isinstance(found, dict):
        found = found.get("message", found.get("detail"))
    return found if isinstance(found, str) else ""


def _seconds(value: str | None) -> int | None:
    return int(value) if value and value.isascii() and value.isdigit() else None
