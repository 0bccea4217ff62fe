"""The HTTP surface: routes, the client's side of a turn, answers. Nothing of a turn's logic."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from disaggpair_router.connection import HttpClient
from disaggpair_router.door import Caller, Door
from disaggpair_router.endpoints import Endpoints
from disaggpair_router.errors import (
    BadRequest,
    BodyTooLarge,
    ClientLeft,
    HeadTooLarge,
    NoEndpoint,
    Overloaded,
    RequestLate,
    RouterError,
    UnknownRoute,
    UnsupportedEncoding,
)
from disaggpair_router.failures import APIS, COUNT_TOKENS, Asked, Failures
from disaggpair_router.inbound.message import TEXT, Answer, Fault, Head, Responder, Work
from disaggpair_router.kv import Api
from disaggpair_router.largebodies import Requests
from disaggpair_router.pick import Endpoint
from disaggpair_router.prefill import RETRY_AFTER_S
from disaggpair_router.request import RequestReader, TurnRequest
from disaggpair_router.running import Running
from disaggpair_router.turn import Turns
from disaggpair_router.upstream import Engines

logger = logging.getLogger(__name__)

Route = Callable[[Head, Asked], Work | Answer]
"""What to do about a request; may raise RouterError."""

_TOKENIZERS: Final = ("/tokenize", COUNT_TOKENS)
_TOKENIZE_S: Final = 30.0


class Routes:
    """What the API port serves (`inbound.message.Application`)."""

    def __init__(
        self,
        *,
        door: Door,
        failures: Failures,
        reader: RequestReader,
        turns: Turns,
        engines: Engines,
        endpoints: Endpoints,
        running: Running,
        keepalive_s: float,
        max_body_bytes: int,
        max_turns: int,
        tokenize: bool = False,
    ) -> None:
        self._keepalive_s = keepalive_s
        self._max_turns = max_turns
        self.max_body_bytes = max_body_bytes
        self.door = door
        self._failures = failures
        self.requests = Requests(reader)
        self.turns = turns
        self._engines = engines
        self._endpoints = endpoints
        self._running = running
        self._routes: dict[tuple[str, str], Route] = {
            ("GET", "/v1/models"): self._models,
            ("GET", "/healthz"): self._healthz,
            ("GET", "/readyz"): self._readyz,
        }
        for path, api in APIS.items():
            self._routes["POST", path] = partial(self._completion, api)
        for path in _TOKENIZERS if tokenize else ():
            self._routes["POST", path] = self._tokenize

    def begin(self, head: Head) -> Work | Answer:
        """See `inbound.message.Application`.

        Callers are let in before anything of a body is read.
        """
        asked = Asked.of(head)
        try:
            method = "GET" if head.method == "HEAD" else head.method
            route = self._routes.get((method, head.path))
            if route is None:
                raise UnknownRoute("This path and method are not offered.")
            return route(head, asked)
        except Exception as error:
            return self._failures.answer(error, asked)

    def fault(self, fault: Fault, head: Head | None) -> Answer:
        """See `inbound.message.Application`."""
        return self._failures.answer(self._faults(fault), Asked.of(head))

    def _faults(self, fault: Fault) -> Exception:
        match fault:
            case "malformed":
                return BadRequest("The request is not valid HTTP/1.1.")
            case "head_too_large":
                return HeadTooLarge("The headers of the request are too long or too many.")
            case "body_too_large":
                return self._too_large()
            case "late":
                return RequestLate("The rest of the request did not come in time.")
            case "overloaded":
                self.door.refuse("overloaded")
                return _overloaded()
            case "failed":
                return RouterError("The router failed to serve the request.")

    def _admitted(self, head: Head, asked: Asked) -> Caller:
        """The caller, if the request may be read."""
        caller = self.door.caller(head.headers, head.peer)
        asked.tenant = caller.tenant
        encodings = head.headers.getall("Content-Encoding", ())
        if any(one.strip().lower() not in ("", "identity") for one in encodings):
            raise UnsupportedEncoding("Content-Encoding must be identity: send the body as it is.")
        if head.length > self.max_body_bytes:
            raise self._too_large()
        return caller

    def _too_large(self) -> BodyTooLarge:
        return BodyTooLarge(f"The body must have at most {self.max_body_bytes} bytes.")

    def _completion(self, api: Api, head: Head, asked: Asked) -> Work:
        caller = self._admitted(head, asked)
        self._make_room()
        return partial(self._turn, api, head, asked, caller)

    def _make_room(self) -> None:
        """Raise NoEndpoint or Overloaded if there may not be one more turn."""
        if self._running.is_draining:
            raise _going_away()
        if self._running.count >= self._max_turns:
            self.door.refuse("overloaded")
            raise _overloaded()

    async def _turn(
        self,
        api: Api,
        head: Head,
        asked: Asked,
        caller: Caller,
        raw: bytes,
        responder: Responder,
    ) -> Answer | None:
        """One turn as a task of its own, which goes on without its client when it must."""
        received = self.turns.now()
        task = asyncio.current_task()
        assert task is not None
        try:
            self._make_room()  # others may have begun while the body came
            self._running.begin(task)
            request = await self.requests.read(api, raw, head.headers, asked.id, caller)
            del raw
            headers = _reply_headers(request)
            client = HttpClient(responder, headers)
            responder.when_gone(partial(self._left, client, task))
            if request.stream and self._keepalive_s:
                client.comment_every(self._keepalive_s)
            asked.is_told = True
            body = await self._answered(request, client, received)
            return None if body is None else Answer(body=body, headers=headers)
        except asyncio.CancelledError:
            if responder.is_gone or responder.has_begun:
                raise
            return self._failures.answer(_going_away(), asked)
        except Exception as error:
            return self._failures.answer(error, asked)
        finally:
            self._running.end(task)

    def _left(self, client: HttpClient, task: "asyncio.Task[object]") -> None:
        client.leave()
        self._running.abandon(task)

    async def _answered(
        self, request: TurnRequest, client: HttpClient, received: float
    ) -> bytes | None:
        """Run a turn; an error after the stream began becomes its last event."""
        try:
            return await self.turns.run(request, client, received)
        except ClientLeft:
            return None
        except Exception as error:
            if not client.has_begun:
                raise
            if not isinstance(error, RouterError):
                logger.exception("a turn failed after its stream began")
            given = request.request_id
            client.send(request.shape.error_event(error, given, client.sent))
            await client.drained()
            return None
        finally:
            client.end_comments()

    def _models(self, head: Head, asked: Asked) -> Work:
        caller = self._admitted(head, asked)

        async def ask(raw: bytes, responder: Responder) -> bytes:
            engine, credentials = self._any_engine(), caller.credentials
            return await self._engines.get(engine, head.path, credentials)

        return self._answering(ask, asked)

    def _tokenize(self, head: Head, asked: Asked) -> Work:
        caller = self._admitted(head, asked)

        async def ask(raw: bytes, responder: Responder) -> bytes:
            body = await self.requests.body(raw)
            del raw
            engine, credentials = self._any_engine(), caller.credentials
            async with self._engines.post(
                engine, head.path, body, credentials, limit_s=_TOKENIZE_S
            ) as reply:
                return await reply.whole(_TOKENIZE_S)

        return self._answering(ask, asked)

    def _any_engine(self) -> Endpoint:
        choice = self._endpoints.choose(single=True)
        if choice is None:
            raise NoEndpoint("No engine is ready.", retry_after_s=RETRY_AFTER_S)
        return choice.decode

    def _healthz(self, head: Head, asked: Asked) -> Answer:
        if self._running.is_broken:
            return _text(503, b"a background task failed\n", asked)
        return _text(200, b"ok\n", asked)

    def _readyz(self, head: Head, asked: Asked) -> Answer:
        if self._running.is_draining:
            return _text(503, b"draining\n", asked)
        if not self._endpoints.can_serve:
            return _text(503, b"no pair of engines is ready\n", asked)
        return _text(200, b"ok\n", asked)

    def _answering(self, ask: Callable[[bytes, Responder], Awaitable[bytes]], asked: Asked) -> Work:
        """What is asked for as an answer, every exception included."""

        async def work(raw: bytes, responder: Responder) -> Answer:
            try:
                return Answer(body=await ask(raw, responder), headers=asked.headers)
            except Exception as error:
                return self._failures.answer(error, asked)

        return work


def _text(status: int, body: bytes, asked: Asked) -> Answer:
    return Answer(status, body, TEXT, asked.headers)


def _going_away() -> NoEndpoint:
    return NoEndpoint("This router is shutting down.", retry_after_s=RETRY_AFTER_S)


def _overloaded() -> Overloaded:
    return Overloaded("This router has too much to do.", retry_after_s=RETRY_AFTER_S)


def _reply_headers(request: TurnRequest) -> dict[str, str]:
    headers = {"X-Request-Id": request.request_id}
    given = request.conversation.id
    # An id with other characters is the client's own and need not come back.
    if given.isascii() and given.isprintable():
        headers["X-Conversation-Id"] = given
    return headers
