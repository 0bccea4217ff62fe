"""Asks the engines of a sampled turn again, in the background, one turn at a time.

The client's own answer is left as it is: what is compared is the KV that the turn left in the
prefix caches of its engines, where later requests would find it too.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

from disaggpair_router.endpoints import Endpoints
from disaggpair_router.errors import EngineFailed, RouterError
from disaggpair_router.guard.compare import FirstToken, Verdict, distance, verdict
from disaggpair_router.guard.config import GuardConfig
from disaggpair_router.guard.questions import TOLD, can_be_asked, first_token, question
from disaggpair_router.metrics import GuardResult, Metrics
from disaggpair_router.pick import Endpoint
from disaggpair_router.request import TurnRequest
from disaggpair_router.seen.turns import SeenTurn, SentLeg
from disaggpair_router.upstream import Engines

logger = logging.getLogger(__name__)

_CONTEXT: Final = ("traceparent", "tracestate")
"""A check is no part of the client's trace."""


@dataclass(frozen=True, slots=True)
class _Job:
    """A turn to be checked."""

    request: TurnRequest
    conversation: str
    way: str
    legs: tuple[SentLeg, ...]


class Guard:
    """Checks a sample of the turns.

    Args:
        config: how many, and how exactly.
        engines: the HTTP client.
        endpoints: which engines are there, and how busy.
        metrics: where results are counted.
        random: draws the sample.
        salt: makes one that nobody had.
    """

    def __init__(
        self,
        config: GuardConfig,
        *,
        engines: Engines,
        endpoints: Endpoints,
        metrics: Metrics,
        random: Random,
        salt: Callable[[], str] = secrets.token_urlsafe,
    ) -> None:
        self._config = config
        self._engines = engines
        self._endpoints = endpoints
        self._metrics = metrics
        self._random = random
        self._salt = salt
        self._jobs: asyncio.Queue[_Job] = asyncio.Queue(1)
        self._is_checking = False

    @property
    def is_on(self) -> bool:
        """Whether any turn is checked."""
        return self._config.sample > 0

    def saw(self, request: TurnRequest, record: SeenTurn) -> None:
        """A turn has ended well; check it if it is drawn and there is room."""
        if record.way not in ("PULL", "DIRECT") or not can_be_asked(request.api):
            return
        if self._random.random() >= self._config.sample:
            return
        legs = tuple(record.legs.values())
        if self._is_checking or self._jobs.full() or not all(map(self._has_room, legs)):
            self._count("skipped")
            return
        self._jobs.put_nowait(_Job(request, record.conversation, record.way, legs))

    async def run(self) -> None:
        """Check for ever; cancel to stop."""
        while True:
            job = await self._jobs.get()
            self._is_checking = True
            try:
                self._count(await self._check(job))
            except RouterError as error:
                logger.info("a turn could not be checked: %s", error.code)
                self._count("failed")
            except Exception:
                # What only looks on must not end a router that serves.
                logger.exception("a turn could not be checked")
                self._count("failed")
            finally:
                self._is_checking = False

    async def _check(self, job: _Job) -> Verdict:
        # First, before others push the turn's blocks out.
        cached = [await self._ask(job, leg.engine, leg.headers) for leg in job.legs]
        engines = sorted((leg.engine for leg in job.legs), key=self._load)
        fresh = [await self._ask(job, engines[0], salt=self._salt())]
        found = self._verdict(cached, fresh)
        if found == "mismatch" and (another := self._another(engines)) is not None:
            fresh.append(await self._ask(job, another, salt=self._salt()))
            found = self._verdict(cached, fresh)
        if found == "mismatch":
            self._tell(job, max(distance(fresh[0], one, told=TOLD) for one in cached))
        return found

    def _verdict(self, cached: list[FirstToken], fresh: list[FirstToken]) -> Verdict:
        return verdict(cached, fresh, tolerance=self._config.tolerance, told=TOLD)

    async def _ask(
        self,
        job: _Job,
        engine: Endpoint,
        headers: Mapping[str, str] | None = None,
        salt: str = "",
    ) -> FirstToken:
        given = job.request.headers if headers is None else headers
        sent = {name: given[name] for name in given if name.lower() not in _CONTEXT}
        body = question(job.request.api, job.request.body, salt=salt)
        limit_s = self._config.limit_s
        with self._endpoints.leg(engine):
            async with self._engines.post(
                engine, job.request.path, body, sent, limit_s=limit_s
            ) as reply:
                raw = await reply.whole(limit_s)
        found = first_token(job.request.api, raw)
        if found is None:
            raise EngineFailed("The engine told no probabilities.")
        return found

    def _another(self, engines: list[Endpoint]) -> Endpoint | None:
        """A second engine, to tell wrong KV from engines that differ anyway."""
        if len(engines) > 1:
            return engines[1]
        (only,) = engines
        return self._endpoints.reader_of(only)

    def _has_room(self, leg: SentLeg) -> bool:
        now = self._endpoints.get(leg.engine.name)
        is_same = now is not None and now.ready and now.incarnation == leg.engine.incarnation
        return is_same and self._load(leg.engine) <= self._config.max_in_flight

    def _load(self, engine: Endpoint) -> int:
        return self._endpoints.in_flight(engine.name)

    def _tell(self, job: _Job, apart: float) -> None:
        logger.error(
            "guard: wrong KV: request=%s conversation=%s way=%s distance=%.2f tolerance=%.2f; "
            "it may lie in a prefix cache, see docs/operations.md",
            job.request.request_id,
            job.conversation,
            job.way,
            apart,
            self._config.tolerance,
        )

    def _count(self, result: GuardResult) -> None:
        self._metrics.guard_checks.labels(result).inc()
