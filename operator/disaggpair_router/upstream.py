"""HTTP to the engines. One session for all requests; every failure becomes one of our errors.

`turn` and its legs call this; nothing above it imports the HTTP client.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Self

import orjson

from disaggpair_router.errors import (
    EngineBusy,
    EngineFailed,
    EngineRefused,
    EngineTimeout,
    Overloaded,
    Unreachable,
    Unsendable,
    public_message,
)
from disaggpair_router.ids import new_id
from disaggpair_router.pick import Endpoint
from disaggpair_router.pool import NoRoom, Pool, Unconnected, request_head, target_of
from disaggpair_router.wire import Broken, Connection, Take

_ERROR_LIMIT: Final = 64 * 1024
_ERROR_S: Final = 5.0
"""For the body of an error, which only says more."""
_WHOLE_LIMIT: Final = 256 * 2**20
"""Of an answer that is not streamed, in bytes."""
_LONGEST_RETRY: Final = 9
"""Digits of a Retry-After that is one."""
_IDLE_S: Final = 3.0
"""Idle connections are dropped before the engine's server does it after 5 s: a request that meets
the close would be lost, and one that carried a handle cannot be repeated."""


class Reply:
    """An engine's successful answer, read as it comes. `read` must not be called concurrently."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def is_stream(self) -> bool:
        """Whether the body is a stream of events."""
        kind = self._connection.headers.get("content-type", "")
        return kind.partition(";")[0].strip().lower() == "text/event-stream"

    async def read(self, limit_s: float) -> bytes:
        """The next bytes, empty at the end; EngineFailed when they do not come or break off."""
        with _as_failures():
            return await self._connection.read(limit_s)

    async def each(self, take: Take, limit_s: float) -> bool:
        """Give the body to `take` as it comes, see `wire.Connection.each`; raises as `read`."""
        with _as_failures():
            return await self._connection.each(take, limit_s)

    async def whole(self, limit_s: float) -> bytes:
        """The rest of the body, raising as `read`."""
        with _as_failures():
            return await self._connection.whole(limit_s, _WHOLE_LIMIT)

    def close(self) -> None:
        """Drop the connection, which aborts the request at the engine."""
        self._connection.close()


@contextmanager
def _as_failures() -> Iterator[None]:
    try:
        yield
    except Broken:
        raise EngineFailed("The engine broke off its answer.") from None
    except TimeoutError:
        raise _late() from None


def _nothing() -> None:
    """For those who do not ask when a request has been sent."""


class Exchange:
    """One request at one engine: sent when the block is entered, over when it is left."""

    def __init__(
        self,
        engines: "Engines",
        endpoint: Endpoint,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: Mapping[str, Any] | None,
        limit_s: float,
        sent: Callable[[], object] = _nothing,
    ) -> None:
        self._sent = sent
        self._engines = engines
        self._target = target_of(endpoint.url)
        self._method = method
        self._path = path
        self._headers = headers
        self._body = body
        self._limit_s = limit_s
        self._connection: Connection | None = None

    async def __aenter__(self) -> Reply:
        """Send, and wait for the answer's head."""
        raw = b"" if self._body is None else _serialized(self._body)
        headers = self._headers if self._body is None else {**self._headers, **_of_body(raw)}
        head = request_head(self._method, self._target, self._path, headers)
        try:
            connection = await self._engines.pool.take(self._target)
        except Unconnected:
            raise Unreachable("The engine cannot be reached.") from None
        except NoRoom:
            raise Overloaded("This router has no connection left.", retry_after_s=1) from None
        try:
            connection.send(head, raw)
            self._sent()
            await connection.head(self._limit_s)
            if connection.status != 200:
                raise await self._engines.refusal(connection)
        except BaseException as error:
            self._engines.pool.give(self._target, connection)
            if isinstance(error, Broken):
                raise EngineFailed("The connection to the engine broke.") from None
            if isinstance(error, TimeoutError):
                raise _late() from None
            raise
        self._connection = connection
        return Reply(connection)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Keep the connection if the answer is complete; else drop it, which aborts the request."""
        if self._connection is not None:
            self._engines.pool.give(self._target, self._connection)


class Engines:
    """Client of all engines. Use as an async context manager.

    `own_key` says that engines see no key of a client's, so that their 401 and 403 are no fault of
    the client's either.
    """

    def __init__(self, *, connect_s: float, own_key: bool = False) -> None:
        self._own_key = own_key
        self._connect_s = connect_s
        self.pool = Pool(connect_s=connect_s, idle_s=_IDLE_S)

    async def __aenter__(self) -> Self:
        """Connections are made when they are needed."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close every connection."""
        self.pool.close()

    def post(
        self,
        endpoint: Endpoint,
        path: str,
        body: Mapping[str, Any],
        headers: Mapping[str, str],
        *,
        limit_s: float,
        sent: Callable[[], object] = _nothing,
    ) -> Exchange:
        """Send one leg and wait at most `limit_s` for the answer's head.

        `sent` is called once the request has been given to its connection.

        The request id is new for every call: the engine builds `remote_request_id` from it, by
        which blocks are freed, so it must be unique and not guessable. Entering raises Unsendable
        before anything is sent, and ClientError or EngineFailed for every answer but 200.
        """
        given = {
            **headers,
            "Content-Type": "application/json",
            "X-Request-Id": new_id(),
        }
        return Exchange(self, endpoint, "POST", path, given, body, limit_s, sent)

    async def get(self, endpoint: Endpoint, path: str, headers: Mapping[str, str]) -> bytes:
        """The body of a small resource; raises as `post` does."""
        limit_s = self._connect_s
        async with Exchange(self, endpoint, "GET", path, headers, None, limit_s) as reply:
            return await reply.whole(limit_s)

    async def refusal(self, connection: Connection) -> EngineRefused | EngineFailed:
        """An error for an answer that is not a success."""
        retry_after_s = _seconds(connection.headers.get("retry-after"))
        if connection.status == 503:
            return EngineBusy("The engine is busy.", retry_after_s=retry_after_s or 1)
        if connection.status in (401, 403) and self._own_key:
            return EngineFailed("The engine refused this router.")
        if not 400 <= connection.status < 500:
            return EngineFailed("The engine failed to serve the request.")
        try:
            message = _message(orjson.loads(await _beginning(connection)))
        except (orjson.JSONDecodeError, Broken, TimeoutError):
            message = ""
        return EngineRefused(
            connection.status,
            public_message(message) or "The engine refused the request.",
            retry_after_s=retry_after_s,
        )


async def _beginning(connection: Connection) -> bytes:
    async with asyncio.timeout(_ERROR_S):
        body = b""
        while len(body) < _ERROR_LIMIT and (piece := await connection.read(_ERROR_S)):
            body += piece
        return body


def _of_body(raw: bytes) -> dict[str, str]:
    return {"Content-Length": str(len(raw))}


def _late() -> EngineTimeout:
    return EngineTimeout("The engine did not answer in time.")


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
    is_count = value and len(value) <= _LONGEST_RETRY and value.isascii() and value.isdigit()
    return int(value) if value and is_count else None
