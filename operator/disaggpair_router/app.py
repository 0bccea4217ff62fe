"""The HTTP surface: routes, the client's side of a turn, answers. Nothing of a turn's logic."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import orjson
from aiohttp import web

from disaggpair_router.apis.table import SHAPES
from disaggpair_router.connection import HttpClient
from disaggpair_router.door import Caller, Door
from disaggpair_router.endpoints import Endpoints
from disaggpair_router.errors import (
    BodyTooLarge,
    ClientLeft,
    NoEndpoint,
    RouterError,
    UnknownRoute,
    UnsupportedEncoding,
    error_head,
)
from disaggpair_router.kv import Api, without_transfer_keys
from disaggpair_router.largebodies import Requests
from disaggpair_router.metrics import Metrics
from disaggpair_router.prefill import RETRY_AFTER_S
from disaggpair_router.request import RequestReader, TurnRequest, json_object, request_id
from disaggpair_router.running import Running
from disaggpair_router.seen.debug import DebugPage
from disaggpair_router.turn import Turns
from disaggpair_router.upstream import Engines

logger = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_JSON = "application/json"
_TOKENIZE = "/tokenize"
_TOKENIZE_S = 30.0
_REQUEST_ID = web.RequestKey("request_id", str)
_CALLER = web.RequestKey("caller", Caller)


class Routes:
    """Handlers of the API port."""

    def __init__(
        self,
        *,
        door: Door,
        reader: RequestReader,
        turns: Turns,
        engines: Engines,
        endpoints: Endpoints,
        running: Running,
        keepalive_s: float,
        tokenize: bool = False,
    ) -> None:
        self._tokenizes = tokenize
        self._keepalive_s = keepalive_s
        self.door = door
        self.reader = reader
        self.requests = Requests(reader)
        self.turns = turns
        self._engines = engines
        self._endpoints = endpoints
        self._running = running

    def application(self, max_body_bytes: int) -> web.Application:
        """The routes that are offered; every other path is a 404."""
        app = web.Application(client_max_size=max_body_bytes)
        if self._tokenizes:
            app.router.add_post(_TOKENIZE, self._admitting(self._tokenize))
        app.add_routes(
            [
                *(
                    web.post(shape.path, self._admitting(self._completion(api), api))
                    for api, shape in SHAPES.items()
                ),
                web.get("/v1/models", self._admitting(self._models)),
                *(
                    [web.post(_TOKENIZE, self._admitting(self._tokenize))]
                    if self._tokenizes
                    else []
                ),
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.route("*", "/{path:.*}", _answering(self._unknown)),
            ]
        )
        return app

    def _admitting(self, handler: Handler, api: Api = "chat") -> Handler:
        """Let callers in who may come, before anything of a body is read."""

        async def handle(http: web.Request) -> web.StreamResponse:
            http[_CALLER] = self.door.caller(http.headers, http.remote or "")
            return await handler(http)

        return _answering(handle, api)

    def _completion(self, api: Api) -> Handler:
        async def handle(http: web.Request) -> web.StreamResponse:
            raw = await _body(http)
            received = self.turns.now()
            request = await self.requests.read(
                api, raw, http.headers, http[_REQUEST_ID], http[_CALLER]
            )
            headers = _reply_headers(request)
            client = HttpClient(http, headers)
            turn = self._running.start(self._turn(request, client, received))
            try:
                if request.stream and self._keepalive_s:
                    await self._keep_alive(turn, client)
                body = await asyncio.shield(turn)
            except asyncio.CancelledError:
                if turn.cancelled() and not client.has_begun:
                    raise _going_away() from None
                client.leave()
                self._running.abandon(turn)
                raise
            if client.response is not None:
                return client.response
            return web.Response(body=body, content_type=_JSON, headers=headers)

        return handle

    async def _turn(
        self, request: TurnRequest, client: HttpClient, received: float
    ) -> bytes | None:
        """Run a turn; an error after the stream began becomes its last event."""
        try:
            return await self.turns.run(request, client, received)
        except ClientLeft:
            return None
        except Exception as error:
            if client.response is None:
                raise
            if not isinstance(error, RouterError):
                logger.exception("a turn failed after its stream began")
            given = request.request_id
            await client.write(request.shape.error_event(error, given, client.sent))
            return None

    async def _keep_alive(self, turn: "asyncio.Task[bytes | None]", client: HttpClient) -> None:
        """Send comments until the turn has something to say or is over."""
        waits = True
        while waits and not turn.done():
            await asyncio.wait({turn}, timeout=self._keepalive_s)
            waits = not turn.done() and await client.keep_alive()

    async def _models(self, http: web.Request) -> web.StreamResponse:
        choice = self._endpoints.choose(single=True)
        if choice is None:
            raise NoEndpoint("No engine is ready.", retry_after_s=RETRY_AFTER_S)
        credentials = http[_CALLER].credentials
        body = await self._engines.get(choice.decode, "/v1/models", credentials)
        return web.Response(body=body, content_type=_JSON)

    async def _tokenize(self, http: web.Request) -> web.StreamResponse:
        body = without_transfer_keys(json_object(await _body(http)))
        choice = self._endpoints.choose(single=True)
        if choice is None:
            raise NoEndpoint("No engine is ready.", retry_after_s=RETRY_AFTER_S)
        credentials = http[_CALLER].credentials
        async with self._engines.post(
            choice.decode, _TOKENIZE, body, credentials, limit_s=_TOKENIZE_S
        ) as reply:
            return web.Response(body=await reply.whole(_TOKENIZE_S), content_type=_JSON)

    async def _healthz(self, _: web.Request) -> web.StreamResponse:
        if self._running.is_broken:
            return web.Response(status=503, text="a background task failed\n")
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.StreamResponse:
        if self._running.is_draining:
            return web.Response(status=503, text="draining\n")
        if not self._endpoints.can_serve:
            return web.Response(status=503, text="no pair of engines is ready\n")
        return web.Response(text="ok\n")

    async def _unknown(self, http: web.Request) -> web.StreamResponse:
        raise UnknownRoute("This path and method are not offered.")


def metrics_application(
    exposition: Callable[[], Awaitable[bytes]], debug: DebugPage | None = None
) -> web.Application:
    """The metrics port."""

    async def handle(_: web.Request) -> web.Response:
        body = await exposition()
        return web.Response(body=body, headers={"Content-Type": Metrics.content_type})

    app = web.Application()
    app.router.add_get("/metrics", handle)
    if debug is not None:
        app.router.add_get("/debug/conversations", _debugging(debug))
    return app


def _debugging(debug: DebugPage) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(http: web.Request) -> web.Response:
        page = debug.page(http.query.get("conversation", ""))
        return web.Response(body=orjson.dumps(page), content_type=_JSON)

    return handle


def _answering(handler: Handler, api: Api = "chat") -> Handler:
    """Turn every exception of a handler into an answer in the shape of an API."""

    async def handle(http: web.Request) -> web.StreamResponse:
        given = http[_REQUEST_ID] = request_id(http.headers)
        try:
            return await handler(http)
        except Exception as error:
            if not isinstance(error, RouterError):
                logger.exception("a request failed")
            status, headers = error_head(error)
            return web.Response(
                status=status,
                body=SHAPES[api].error_body(error, given),
                content_type=_JSON,
                headers={**headers, "X-Request-Id": given},
            )

    return handle


async def _body(http: web.Request) -> bytes:
    encoding = http.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise UnsupportedEncoding("Content-Encoding must be identity: send the body as it is.")
    limit = http.client_max_size
    too_large = BodyTooLarge(f"The body must have at most {limit} bytes.")
    if (http.content_length or 0) > limit:
        raise too_large
    try:
        return await http.read()
    except web.HTTPRequestEntityTooLarge:
        raise too_large from None


def _going_away() -> NoEndpoint:
    return NoEndpoint("This router is shutting down.", retry_after_s=RETRY_AFTER_S)


def _reply_headers(request: TurnRequest) -> dict[str, str]:
    headers = {"X-Request-Id": request.request_id}
    given = request.conversation.id
    # An id with other characters is the client's own and need not come back.
    if given.isascii() and given.isprintable():
        headers["X-Conversation-Id"] = given
    return headers
