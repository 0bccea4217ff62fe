"""The routes of the engine's HTTP server."""

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from disaggpair_bed.simengine import control, plainroutes, sleeproutes
from disaggpair_bed.simengine.answers import json_response
from disaggpair_bed.simengine.apierrors import ApiError
from disaggpair_bed.simengine.apis import APIS
from disaggpair_bed.simengine.faults import Faults
from disaggpair_bed.simengine.generation import Generation
from disaggpair_bed.simengine.ranks import Ranks
from disaggpair_bed.simengine.recorder import Recorder

LARGEST_BODY = 256 * 1024 * 1024

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def build(ranks: Ranks, faults: Faults, recorder: Recorder) -> web.Application:
    """The application in front of the ranks of one engine."""
    app = web.Application(
        middlewares=[_frozen(faults), _errors, _authenticate(ranks)],
        client_max_size=LARGEST_BODY,
    )
    for api in APIS:
        app.router.add_post(api.path, Generation(api, ranks, faults, recorder).serve)
    plainroutes.add_routes(app.router, ranks, faults)
    sleeproutes.add_routes(app.router, ranks)
    if ranks.options.control:
        control.add_routes(app.router, ranks, faults, recorder)
    return app


def _frozen(faults: Faults) -> Any:
    """Let requests wait while the engine is frozen, those of the test left out."""

    @web.middleware
    async def wait(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not request.path.startswith("/sim/"):
            await faults.thawed()
        return await handler(request)

    return wait


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Errors of the API as JSON; those of the router in the shape of vLLM's framework."""
    try:
        return await handler(request)
    except ApiError as error:
        return error.response()
    except web.HTTPException as error:
        if error.status >= 400:
            return json_response({"detail": error.reason}, status=error.status)
        raise


def _authenticate(ranks: Ranks) -> Any:
    """Check the bearer key of /v1 routes when keys are set."""
    accepted = {f"Bearer {key}" for key in ranks.options.api_keys}

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        guarded = bool(accepted) and request.path.startswith("/v1")
        if guarded and request.headers.get("Authorization") not in accepted:
            return json_response({"error": "Unauthorized"}, status=401)
        return await handler(request)

    return check
