"""Finds engines that take requests and never answer them, while /health says that all is well.

An engine whose core is stuck (a peer that went away in the middle of a transfer, a lost worker)
keeps its port and its health check. So one that has answered no leg for a time gets a request of
one token. If that has no answer either, and nobody else got one meanwhile, no turn is sent there
until a later one comes back.

A busy engine is not a stuck one: as long as it answers anybody, it is left alone.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, Final

import orjson

from disaggpair_router.endpoints import Endpoints
from disaggpair_router.errors import ClientError, EngineTimeout, RouterError
from disaggpair_router.pick import Endpoint
from disaggpair_router.upstream import Engines

logger = logging.getLogger(__name__)

_PATH: Final = "/v1/completions"


class Canary:
    """Sends the requests of one token.

    Args:
        engines: the HTTP client.
        endpoints: told which engines are stuck.
        headers: for the engines, such as a key.
        every_s: an engine that answered somebody within this time is not asked.
        limit_s: for an answer.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        *,
        engines: Engines,
        endpoints: Endpoints,
        headers: dict[str, str],
        every_s: float,
        limit_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._engines = engines
        self._endpoints = endpoints
        self._headers = headers
        self._every_s = every_s
        self._limit_s = limit_s
        self._clock = clock
        self._models: dict[str, str] = {}

    async def run(self) -> None:
        """Ask for ever; cancel to stop."""
        asking: dict[str, asyncio.Task[None]] = {}
        try:
            while True:
                for endpoint in self._endpoints:
                    task = asking.get(endpoint.name)
                    if self._is_due(endpoint) and (task is None or task.done()):
                        asking[endpoint.name] = asyncio.create_task(self.check(endpoint))
                known = {endpoint.name for endpoint in self._endpoints}
                for name in asking.keys() - known:
                    asking.pop(name).cancel()
                await asyncio.sleep(self._every_s / 2)
        finally:
            for task in asking.values():
                task.cancel()

    async def check(self, endpoint: Endpoint) -> None:
        """Ask one engine, and tell the registry what came of it."""
        began = self._clock()
        try:
            await self._ask(endpoint)
        except EngineTimeout:
            if self._endpoints.last_answer(endpoint) < began and self._is_same(endpoint):
                self._stuck(endpoint)
            return
        except ClientError:
            pass  # it refuses, so it answers
        except RouterError:
            # Nobody there, or it broke off: whoever watches its readiness sees that, too.
            return
        self._well(endpoint)

    def _is_due(self, endpoint: Endpoint) -> bool:
        if not endpoint.ready:
            return False
        silent_s = self._clock() - self._endpoints.last_answer(endpoint)
        return self._endpoints.is_stuck(endpoint) or silent_s >= self._every_s

    def _is_same(self, endpoint: Endpoint) -> bool:
        now = self._endpoints.get(endpoint.name)
        return now is not None and now.ready and now.incarnation == endpoint.incarnation

    async def _ask(self, endpoint: Endpoint) -> None:
        body: dict[str, Any] = {"prompt": [1], "max_tokens": 1, "temperature": 0, "stream": False}
        model = await self._model(endpoint)
        if model:
            body["model"] = model
        async with self._engines.post(
            endpoint, _PATH, body, self._headers, limit_s=self._limit_s
        ) as reply:
            await reply.whole(self._limit_s)

    async def _model(self, endpoint: Endpoint) -> str:
        """A model's name that the engine knows; asked for once in each of its lives."""
        life = f"{endpoint.name}/{endpoint.incarnation}"
        if life not in self._models:
            with contextlib.suppress(ClientError):
                raw = await self._engines.get(endpoint, "/v1/models", self._headers)
                self._models = {**self._models, life: _first(raw)}
        return self._models.get(life, "")

    def _stuck(self, endpoint: Endpoint) -> None:
        if self._endpoints.set_stuck(endpoint, stuck=True):
            logger.warning(
                "the %s engine at %s answers nothing any more; it gets no turns",
                endpoint.role,
                endpoint.url,
            )

    def _well(self, endpoint: Endpoint) -> None:
        self._endpoints.answered(endpoint)
        if self._endpoints.set_stuck(endpoint, stuck=False):
            logger.info("the %s engine at %s answers again", endpoint.role, endpoint.url)


def _first(raw: bytes) -> str:
    try:
        models = orjson.loads(raw)["data"]
        return str(models[0]["id"])
    except (orjson.JSONDecodeError, KeyError, IndexError, TypeError):
        return ""
