"""Sleep, pauses and new weights, as vLLM's server has them in its development mode."""

import asyncio

from aiohttp import web

from disaggpair_bed.simengine.answers import json_response
from disaggpair_bed.simengine.apierrors import ApiError
from disaggpair_bed.simengine.ranks import Ranks


def add_routes(router: web.UrlDispatcher, ranks: Ranks) -> None:
    """Mount the routes, where the server has them."""
    if not (ranks.options.development or ranks.options.control):
        return
    routes = _Sleep(ranks)
    router.add_post("/sleep", routes.sleep)
    router.add_post("/wake_up", routes.wake_up)
    router.add_get("/is_sleeping", routes.is_sleeping)
    router.add_post("/pause", routes.pause)
    router.add_post("/resume", routes.resume)
    router.add_post("/update_weights", routes.update_weights)
    router.add_post("/reset_prefix_cache", routes.reset_prefix_cache)


class _Sleep:
    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._weights = 0

    async def sleep(self, request: web.Request) -> web.Response:
        """Abort what runs; from level 1 on the KV is gone."""
        level = request.query.get("level", "1")
        if level not in ("0", "1", "2"):
            raise ApiError(400, "level: Input should be 0, 1 or 2", param="level")
        naps = (engine.sleep(keeps_kv=level == "0") for engine in self._ranks.engines)
        await asyncio.gather(*naps)
        return json_response({"status": "sleeping", "level": int(level)})

    async def wake_up(self, _: web.Request) -> web.Response:
        for engine in self._ranks.engines:
            engine.wake_up()
        return json_response({"status": "awake", "tags": None})

    async def is_sleeping(self, _: web.Request) -> web.Response:
        return json_response({"is_sleeping": self._ranks.engines[0].is_sleeping})

    async def pause(self, request: web.Request) -> web.Response:
        """Abort what runs and refuse what comes, until a resume."""
        self._ranks.is_paused = True
        for engine in self._ranks.engines:
            engine.abort_all()
            if request.query.get("clear_cache", "true") != "false":
                engine.core.reset_prefix_cache()
        return json_response({"status": "paused"})

    async def resume(self, _: web.Request) -> web.Response:
        self._ranks.is_paused = False
        return json_response({"status": "resumed"})

    async def update_weights(self, _: web.Request) -> web.Response:
        """Other weights from now on; what was computed stays where it is."""
        self._weights += 1
        for engine in self._ranks.engines:
            engine.core.cache.update_weights(self._weights)
        return json_response({"message": "Weights updated"})

    async def reset_prefix_cache(self, _: web.Request) -> web.Response:
        for engine in self._ranks.engines:
            engine.core.reset_prefix_cache()
        return json_response({"success": True})
