"""Readiness of engines at fixed URLs: asks each for /health again and again.

A connection that is refused means the process is gone, and with it every handle into it: the
next time it answers it counts as another incarnation.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from disaggpair_router.endpoints import Endpoints
from disaggpair_router.errors import (
    EngineBusy,
    EngineRefused,
    Overloaded,
    RouterError,
    Unreachable,
)
from disaggpair_router.pick import Endpoint, Role
from disaggpair_router.readiness import Readiness
from disaggpair_router.upstream import Engines

_MISSES = 3
"""Unanswered checks in a row until an engine that still accepts connections is not ready: its
loop is busy for seconds while it loads or compiles."""


def static_endpoints(prefill: Sequence[str], decode: Sequence[str]) -> list[Endpoint]:
    """Endpoints for base URLs, not ready until they answered."""
    roles: tuple[tuple[Role, Sequence[str]], ...] = (("prefill", prefill), ("decode", decode))
    return [
        Endpoint(name=url.rstrip("/"), url=url.rstrip("/"), role=role, ready=False, incarnation="0")
        for role, urls in roles
        for url in urls
    ]


class Probe:
    """Checks static endpoints and reports to the registry."""

    def __init__(
        self, static: Sequence[Endpoint], *, engines: Engines, endpoints: Endpoints, every_s: float
    ) -> None:
        self._names = [endpoint.name for endpoint in static]
        self._engines = engines
        self._endpoints = endpoints
        self._every_s = every_s
        self._misses: dict[str, int] = {}
        self._readiness = Readiness()
        endpoints.replace_all(static)

    async def run(self) -> None:
        """Check all, wait, again; cancel to stop."""
        while True:
            await self.check()
            await asyncio.sleep(self._every_s)

    async def check(self) -> None:
        """Check every endpoint once, all at the same time."""
        await asyncio.gather(*(self._check(name) for name in self._names))

    async def _check(self, name: str) -> None:
        endpoint = self._endpoints.get(name)
        if endpoint is None:
            return
        try:
            await self._engines.get(endpoint, "/health", {})
        except Overloaded:
            return  # nothing was learned of the engine
        except Unreachable as error:
            life = int(endpoint.incarnation) + endpoint.ready
            self._found(replace(endpoint, ready=False, incarnation=str(life)), error)
        except RouterError as error:
            self._misses[name] = self._misses.get(name, 0) + 1
            if self._misses[name] >= _MISSES:
                self._found(replace(endpoint, ready=False), error)
        else:
            self._misses[name] = 0
            self._found(replace(endpoint, ready=True))

    def _found(self, endpoint: Endpoint, error: RouterError | None = None) -> None:
        self._endpoints.put(endpoint)
        self._readiness.tell(endpoint, _why(error) if error else "")


def _why(error: RouterError) -> str:
    match error:
        case Unreachable():
            return "no connection can be made"
        case EngineRefused() | EngineBusy():
            return f"GET /health was answered with {error.status}"
        case _:
            return f"GET /health: {error.message.rstrip('.')}"
