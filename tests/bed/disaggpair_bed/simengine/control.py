"""The /sim endpoints of an engine that was started with --sim-control.

| request               | effect                                                                |
|-----------------------|-----------------------------------------------------------------------|
| GET /sim/oracle       | handles by state, live handles, violations, findings                  |
| GET /sim/state        | engine id, blocks, leases, requests in each state                     |
| GET /sim/requests     | the last generation requests with headers and body, oldest first      |
| GET /sim/fault        | faults that are switched on, and the kinds there are                  |
| POST /sim/fault       | switch one on: {"kind": ..., "count": ..., ...}                       |
| DELETE /sim/fault     | switch all off                                                        |
| POST /sim/crash       | the engine core dies                                                  |
| POST /sim/reset_cache | forget the prefix cache                                               |
| POST /sim/freeze      | nothing moves any more but /sim, as after SIGSTOP                     |
| POST /sim/thaw        | everything goes on                                                    |
| DELETE /sim/watches   | close the connections that watch the leases                           |
"""

from typing import Any

import orjson
from aiohttp import web

from disaggpair_bed.simengine import oracle
from disaggpair_bed.simengine.answers import json_response
from disaggpair_bed.simengine.engine import Engine
from disaggpair_bed.simengine.faults import KINDS, FaultError, Faults
from disaggpair_bed.simengine.ranks import Ranks
from disaggpair_bed.simengine.recorder import Recorder


def add_routes(router: web.UrlDispatcher, ranks: Ranks, faults: Faults, recorder: Recorder) -> None:
    """Mount the endpoints."""
    control = _Control(ranks, faults, recorder)
    router.add_get("/sim/oracle", control.oracle)
    router.add_get("/sim/state", control.state)
    router.add_get("/sim/requests", control.requests)
    router.add_get("/sim/fault", control.list_faults)
    router.add_post("/sim/fault", control.add_fault)
    router.add_delete("/sim/fault", control.clear_faults)
    router.add_post("/sim/crash", control.crash)
    router.add_post("/sim/reset_cache", control.reset_cache)
    router.add_post("/sim/freeze", control.freeze)
    router.add_post("/sim/thaw", control.thaw)
    router.add_delete("/sim/watches", control.cut_watches)


_SUMMED = ("blocks", "free_blocks", "leases", "running", "waiting", "reading", "in_flight")


def _state(engine: Engine) -> dict[str, Any]:
    core = engine.core
    core.connector.settle()
    return {
        "engine_id": engine.engine_id,
        "side_channel_port": engine.ports.side_channel,
        "lease_port": engine.ports.lease,
        "blocks": core.pool.num_blocks,
        "free_blocks": core.pool.free_blocks,
        "leases": core.connector.kept,
        "running": core.running,
        "waiting": core.waiting,
        "reading": core.reading,
        "in_flight": engine.in_flight,
    }


class _Control:
    def __init__(self, ranks: Ranks, faults: Faults, recorder: Recorder) -> None:
        self._ranks = ranks
        self._faults = faults
        self._recorder = recorder

    async def oracle(self, _: web.Request) -> web.Response:
        for engine in self._ranks.engines:
            engine.core.connector.settle()
        report = oracle.report([engine.oracle for engine in self._ranks.engines])
        found = [line for engine in self._ranks.engines for line in engine.findings()]
        return json_response({**report, "findings": found})

    async def state(self, _: web.Request) -> web.Response:
        states = [_state(engine) for engine in self._ranks.engines]
        sums = {key: sum(state[key] for state in states) for key in _SUMMED}
        return json_response({**states[0], **sums, "ranks": states})

    async def requests(self, _: web.Request) -> web.Response:
        return json_response(self._recorder.report())

    async def list_faults(self, _: web.Request) -> web.Response:
        return json_response({"active": self._faults.active(), "kinds": KINDS})

    async def add_fault(self, request: web.Request) -> web.Response:
        try:
            settings = orjson.loads(await request.read())
            kind = settings.pop("kind")
            self._faults.add(kind, **settings)
        except (FaultError, ValueError, KeyError, AttributeError, TypeError) as error:
            return json_response({"error": f"no such fault: {error}"}, status=400)
        return json_response({"active": self._faults.active()})

    async def clear_faults(self, _: web.Request) -> web.Response:
        self._faults.clear()
        return json_response({"active": []})

    async def crash(self, _: web.Request) -> web.Response:
        self._ranks.crash("asked to by /sim/crash")
        return json_response({})

    async def reset_cache(self, _: web.Request) -> web.Response:
        for engine in self._ranks.engines:
            engine.core.reset_prefix_cache()
        return json_response({})

    async def freeze(self, _: web.Request) -> web.Response:
        self._faults.freeze()
        return json_response({})

    async def thaw(self, _: web.Request) -> web.Response:
        self._faults.thaw()
        return json_response({})

    async def cut_watches(self, _: web.Request) -> web.Response:
        return json_response({"cut": sum(one.cut_watches() for one in self._ranks.engines)})
