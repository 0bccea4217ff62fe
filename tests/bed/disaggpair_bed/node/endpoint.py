"""The node's TLS endpoint, for `kubectl logs`. Only the API server may ask.

Serves `GET /containerLogs/NAMESPACE/POD/CONTAINER` with the options of the pod log API and
`GET /healthz`. exec, attach and port-forward answer 501: they need a protocol (SPDY) that is not
worth its code here.
"""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from aiohttp import web

from disaggpair_bed.node.config import NodeConfig
from disaggpair_bed.node.errors import ConfigError
from disaggpair_bed.node.logs import LogQuery, read_log, since
from disaggpair_bed.node.pods import Pods

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving_logs(config: NodeConfig, pods: Pods) -> AsyncIterator[None]:
    """Serve while the block runs; does nothing for a node without a certificate."""
    if config.serving_cert is None or config.serving_key is None:
        yield
        return
    runner = web.AppRunner(_application(config, pods), access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        try:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=config.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_cert_chain(config.serving_cert, config.serving_key)
            await web.TCPSite(runner, config.address, config.port, ssl_context=context).start()
        except OSError as exc:
            where = f"{config.address}:{config.port}"
            raise ConfigError(f"node {config.name} cannot serve logs at {where}: {exc}") from exc
        yield
    finally:
        await runner.cleanup()


def _application(config: NodeConfig, pods: Pods) -> web.Application:
    @web.middleware
    async def only_the_api_server(request: web.Request, handler: Handler) -> web.StreamResponse:
        name = _common_name(request)
        if name != config.client_name:
            raise web.HTTPForbidden(text=f"client {name!r} may not use this endpoint\n")
        return await handler(request)

    async def logs(request: web.Request) -> web.StreamResponse:
        return await _logs(request, pods)

    app = web.Application(middlewares=[only_the_api_server])
    app.router.add_get("/healthz", _healthz)
    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", logs)
    app.router.add_route("*", "/{kind:exec|attach|portForward|run}/{rest:.*}", _not_here)
    return app


async def _logs(request: web.Request, pods: Pods) -> web.StreamResponse:
    names = request.match_info
    worker = pods.find(names["namespace"], names["pod"])
    runner = worker.runner(names["container"]) if worker else None
    if runner is None:
        raise web.HTTPNotFound(
            text=f"no container {names['container']!r} of {names['pod']!r} here\n"
        )
    try:
        query = parse_query(request.query, datetime.now(UTC))
    except ValueError as exc:
        raise web.HTTPBadRequest(text=f"{exc}\n") from exc
    log = runner.previous_log if query.previous else runner.log
    if log is None:
        what = "previous terminated container" if query.previous else "container"
        raise web.HTTPBadRequest(text=f"{what} {names['container']!r} has no log yet\n")
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    async for piece in read_log(log, query):
        await response.write(piece)
    return response


def parse_query(values: Mapping[str, str], now: datetime) -> LogQuery:
    """The options of a log request; raises ValueError naming the option."""

    def number(name: str) -> int | None:
        text = values.get(name)
        if text is None:
            return None
        if not text.isdigit():
            raise ValueError(f"{name} is {text!r}: it must be a whole number of at least 0")
        return int(text)

    def flag(name: str) -> bool:
        return values.get(name) == "true"

    return LogQuery(
        follow=flag("follow"),
        previous=flag("previous"),
        timestamps=flag("timestamps"),
        tail_lines=number("tailLines"),
        limit_bytes=number("limitBytes"),
        since=since(number("sinceSeconds"), values.get("sinceTime"), now),
    )


def _common_name(request: web.Request) -> str:
    certificate = request.get_extra_info("peercert") or {}
    parts = {key: value for rdn in certificate.get("subject", ()) for key, value in rdn}
    return str(parts.get("commonName", ""))


async def _healthz(request: web.Request) -> web.Response:
    return web.Response(text="ok")


async def _not_here(request: web.Request) -> web.Response:
    return web.Response(
        status=501, text=f"process nodes do not support {request.match_info['kind']}\n"
    )
