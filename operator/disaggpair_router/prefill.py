"""The P leg: with a handle if the turn has one, and what is done when P does not answer well.

A P that was given a handle may never answer (a failed read under some settings parks the request
for ever), and after a failed attempt nobody can say whether the blocks were read. So the second
attempt never carries the handle; only when no connection was made is it put back.
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

import orjson

from disaggpair_connector.contract import KV_TRANSFER_PARAMS
from disaggpair_router.client import Client
from disaggpair_router.endpoints import Endpoints
from disaggpair_router.errors import (
    ClientError,
    ClientLeft,
    EngineBusy,
    EngineFailed,
    EngineTimeout,
    NoEndpoint,
    Overloaded,
    Unreachable,
    Unsendable,
)
from disaggpair_router.held import Claim, TurnKV
from disaggpair_router.kv import InvalidParams, Json, checked_prefill_params, prefill_body
from disaggpair_router.metrics import Fallback
from disaggpair_router.pick import Endpoint
from disaggpair_router.plan import Plan
from disaggpair_router.request import TurnRequest
from disaggpair_router.retries import RetryBudget
from disaggpair_router.seen.turns import SeenTurn
from disaggpair_router.upstream import Engines

RETRY_AFTER_S = 2
"""What a client is told when nothing is ready."""
UNREACHABLE_PAUSE_S = 2.0
"""An engine without an open port is left alone for so long: it restarts, or its pod is going."""
_SILENT_PAUSE_S = 30.0
"""A P that did not answer a plain turn hangs; every further turn would wait for the limit too."""
_ATTEMPTS = 2
_COMPLAINT_S = 60.0
"""Between two warnings about the same prefill engine."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Prefilled:
    """What the P leg leaves for the D leg."""

    decode: Endpoint
    """The engine that answers; a prefill engine when no decode engine is ready."""
    params: Json | None = None
    """None: `decode` serves the turn alone, without transfer parameters."""


class PrefillLeg:
    """Runs P legs; one object serves all turns."""

    def __init__(
        self,
        *,
        engines: Engines,
        endpoints: Endpoints,
        retries: RetryBudget,
        limit_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._engines = engines
        self._endpoints = endpoints
        self._retries = retries
        self._limit_s = limit_s
        self._clock = clock
        self._complaints: dict[str, float] = {}

    async def run(
        self,
        request: TurnRequest,
        kv: TurnKV,
        plan: Plan,
        client: Client,
        record: SeenTurn,
        avoid: Collection[str] = (),
    ) -> Prefilled:
        """Prefill a turn, or find the engine that serves it alone.

        Raises ClientError as P gave it, EngineFailed or NoEndpoint when the turn cannot be
        served, and ClientLeft when nobody waits any more.
        """
        if request.alone:
            record.way = "SINGLE"
            record.missed("unsupported")
            return Prefilled(self._one_engine(avoid))
        tried = set(avoid)
        failure: EngineFailed | None = None
        for attempt in range(_ATTEMPTS):
            if client.is_gone:
                raise ClientLeft("prefill" if attempt else "before")
            choice = self._endpoints.choose(holder=kv.holder, avoid=tried)
            if choice is None or choice.prefill is None:
                break
            if attempt and not self._may_repeat(failure, choice.prefill, tried, record):
                break
            try:
                return await self._attempt(request, kv, plan, choice.prefill, choice.decode, record)
            except EngineFailed as error:
                failure = error
                tried.add(choice.prefill.name)
        return self._alone(failure, record, avoid)

    def _may_repeat(
        self,
        failure: EngineFailed | None,
        prefill: Endpoint,
        tried: Collection[str],
        record: SeenTurn,
    ) -> bool:
        """Whether a leg may be sent again: not to a busy P, and within the budget."""
        if isinstance(failure, EngineBusy) and prefill.name in tried:
            return False
        if not self._retries.take():
            record.not_retried("prefill")
            return False
        record.retried("prefill")
        return True

    async def _attempt(
        self,
        request: TurnRequest,
        kv: TurnKV,
        plan: Plan,
        prefill: Endpoint,
        decode: Endpoint,
        record: SeenTurn,
    ) -> Prefilled:
        with record.claiming():
            found = await kv.claim(prefill) if plan.may_read else "not_worth"
        claim = None if isinstance(found, str) else found
        handle = claim.handle.for_prefill() if claim else None
        if isinstance(found, str):
            record.way = "FULL"
            record.missed(found)
        else:
            record.way, record.miss = "PULL", None
        try:
            # Without the reservation a burst of turns would choose the same decode engine.
            with (
                self._endpoints.reserved(decode),
                plan.prefilling(prefill.name, reads=claim is not None) as note,
            ):
                reply = await self._send(request, prefill, handle, record)
                note.cached_tokens = _cached(reply)
        except (ClientError, EngineFailed) as error:
            self._settle(error, claim, prefill, record)
            raise
        except Overloaded:
            if claim is not None:
                claim.restore()
            raise
        except Exception:
            if claim is not None:
                claim.give_up()
            raise
        record.add_prompt_usage(reply.get("usage"))
        decode = self._endpoints.still_or_other(prefill, decode)
        try:
            return Prefilled(decode, checked_prefill_params(reply.get(KV_TRANSFER_PARAMS)))
        except InvalidParams:
            # D must not be told to read what is not there, and an empty object of parameters
            # would make it pin blocks for ever.
            record.fell_back("no_params")
            self._complain(prefill)
            return Prefilled(decode)

    async def _send(
        self, request: TurnRequest, prefill: Endpoint, handle: object, record: SeenTurn
    ) -> Json:
        body = prefill_body(request.api, request.body, handle)
        with (
            self._endpoints.leg(prefill),
            record.leg("prefill", prefill, request.headers) as headers,
        ):
            async with self._engines.post(
                prefill, request.path, body, headers, limit_s=self._limit_s, sent=record.sent
            ) as reply:
                raw = await reply.whole(self._limit_s)
        try:
            answer = orjson.loads(raw)
        except orjson.JSONDecodeError:
            answer = None
        if not isinstance(answer, dict):
            raise EngineFailed("The engine's answer is not a JSON object.")
        return answer

    def _settle(
        self,
        error: ClientError | EngineFailed,
        claim: Claim | None,
        prefill: Endpoint,
        record: SeenTurn,
    ) -> None:
        """What a failed attempt means for the handle and for later turns."""
        if isinstance(error, EngineBusy):
            self._endpoints.busy(prefill, error.retry_after_s or 0)
        if isinstance(error, (Unreachable, Unsendable)):
            record.way, record.miss = "NONE", None
            if isinstance(error, Unreachable):
                self._endpoints.suspect(prefill, UNREACHABLE_PAUSE_S)
            if claim is not None:
                claim.restore()
        elif claim is not None:
            record.miss = "refused"
            if isinstance(error, ClientError):
                claim.give_up()
            if isinstance(error, EngineTimeout):
                claim.pause(prefill)
        elif isinstance(error, EngineTimeout):
            self._endpoints.suspect(prefill, _SILENT_PAUSE_S)

    def _alone(
        self, failure: EngineFailed | None, record: SeenTurn, avoid: Collection[str]
    ) -> Prefilled:
        if not self._endpoints.single_engine:
            if failure is None or isinstance(failure, Unreachable):
                raise _nothing_ready() from failure
            raise failure
        engine = self._one_engine(avoid)
        missing: Fallback = "no_decode" if engine.role == "prefill" else "no_prefill"
        record.fell_back("prefill_failed" if failure else missing)
        return Prefilled(engine)

    def _complain(self, prefill: Endpoint) -> None:
        """Say it once in a while: every turn would otherwise run on P for nothing, unseen."""
        now = self._clock()
        if now >= self._complaints.get(prefill.name, now):
            self._complaints[prefill.name] = now + _COMPLAINT_S
            logger.warning(
                "a prefill engine gave no transfer parameters, so decode computed the turn "
                "alone. Do both roles have --kv-transfer-config?"
            )

    def _one_engine(self, avoid: Collection[str]) -> Endpoint:
        choice = self._endpoints.choose(avoid=avoid, single=True)
        if choice is None:
            raise _nothing_ready()
        return choice.decode


def _cached(reply: Json) -> int:
    """Tokens that P says it did not compute."""
    params = reply.get(KV_TRANSFER_PARAMS)
    cached = params.get("remote_prefill_cached_tokens") if isinstance(params, dict) else None
    return cached if isinstance(cached, int) else 0


def _nothing_ready() -> NoEndpoint:
    return NoEndpoint(
        "No pair of engines is ready to serve the request.", retry_after_s=RETRY_AFTER_S
    )
