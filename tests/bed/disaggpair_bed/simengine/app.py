"""The routes of the engine's HTTP server."""

from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from aiohttp import web

from disaggpair_bed.simengine import control, metrics
from disaggpair_bed.simengine.apierrors import ApiError
from disaggpair_bed.simengine.faults import Faults
from disaggpair_bed.simengine.generation import Generation
from disaggpair_bed.simengine.ranks import Ranks
from disaggpair_bed.simengine.recorder import Recorder

LARGEST_BODY = 256 * 1024 * 1024

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def build(ranks: Ranks, faults: Faults, recorder: Recorder) -> web.Application:
    """The application in front of the ranks of one engine."""
    app = web.Application(middlewares=[_errors, _authenticate(ranks)], client_max_size=LARGEST_BODY)
    generation = Generation(ranks, faults, recorder)
    plain = _Plain(ranks, faults)
    app.router.add_post("/v1/chat/completions", generation.chat)
    app.router.add_post("/v1/completions", generation.completions)
    app.router.add_get("/v1/models", plain.models)
    app.router.add_get("/health", plain.health)
    app.router.add_get("/ping", plain.health)
    app.router.add_get("/version", plain.version)
    app.router.add_get("/load", plain.load)
    app.router.add_get("/metrics", plain.metrics)
    if ranks.options.control:
        control.add_routes(app.router, ranks, faults, recorder)
    return app


class _Plain:
    """Routes that do not generate."""

    def __init__(self, ranks: Ranks, faults: Faults) -> None:
        self._ranks = ranks
        self._faults = faults

    async def models(self, _: web.Request) -> web.Response:
        options = self._ranks.options
        cards = [
            {
                "id": name,
                "object": "model",
                "created": 0,
                "owned_by": "vllm",
                "root": options.model,
                "parent": None,
                "max_model_len": options.core.max_model_len,
            }
            for name in options.names
        ]
        return _json({"object": "list", "data": cards})

    async def health(self, _: web.Request) -> web.Response:
        bad = bool(self._ranks.death) or self._faults.take("unhealthy") is not None
        return web.Response(status=503 if bad else 200)

    async def version(self, _: web.Request) -> web.Response:
        return _json({"version": str(self._ranks.options.release)})

    async def load(self, _: web.Request) -> web.Response:
        return _json({"server_load": self._ranks.in_flight})

    async def metrics(self, _: web.Request) -> web.Response:
        options = self._ranks.options
        cores = [engine.core for engine in self._ranks.engines]
        text = metrics.render(cores, options.names[0], options.release)
        return web.Response(text=text, headers={"Content-Type": metrics.CONTENT_TYPE})


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Errors of the API as JSON; those of the router in the shape of vLLM's framework."""
    try:
        return await handler(request)
    except ApiError as error:
        return error.response()
    except web.HTTPException as error:
        if error.status >= 400:
            return _json({"detail": error.reason}, status=error.status)
        raise


def _authenticate(ranks: Ranks) -> Any:
    """Check the bearer key of /v1 routes when keys are set."""
    accepted = {f"Bearer {key}" for key in ranks.options.api_keys}

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        guarded = bool(accepted) and request.path.startswith("/v1")
        if guarded and request.headers.get("Authorization") not in accepted:
            return _json({"error": "Unauthorized"}, status=401)
        return await handler(request)

    return check


def _json(body: object, *, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")
