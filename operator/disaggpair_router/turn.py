"""One turn: P leg, D leg, and one repetition of both while the client has seen nothing.

This module only orders; `prefill` and `decode` run the legs, `app` answers the client.
"""

import asyncio
from collections.abc import Callable

from disaggpair_router.client import Client
from disaggpair_router.decode import DecodeLeg
from disaggpair_router.endpoints import Endpoints
from disaggpair_router.errors import (
    ClientLeft,
    EngineBusy,
    NoEndpoint,
    Unreachable,
)
from disaggpair_router.guard.checks import Guard
from disaggpair_router.held import HeldKV, TurnKV
from disaggpair_router.metrics import Metrics
from disaggpair_router.plan import Plan, Planning
from disaggpair_router.prefill import UNREACHABLE_PAUSE_S, Prefilled, PrefillLeg
from disaggpair_router.request import TurnRequest
from disaggpair_router.retries import RetryBudget
from disaggpair_router.seen.tracing import Tracer
from disaggpair_router.seen.turns import SeenTurn


class Turns:
    """Runs turns; one object serves all of them."""

    def __init__(
        self,
        *,
        prefill: PrefillLeg,
        decode: DecodeLeg,
        held: HeldKV,
        plans: Planning,
        retries: RetryBudget,
        endpoints: Endpoints,
        metrics: Metrics,
        tracer: Tracer,
        guard: Guard,
        clock: Callable[[], float],
    ) -> None:
        self._held = held
        self._plans = plans
        self._retries = retries
        self._prefill = prefill
        self._decode = decode
        self._endpoints = endpoints
        self._metrics = metrics
        self.tracer = tracer
        """Makes the traces; may be replaced before the first turn."""
        self._guard = guard
        self._clock = clock

    def now(self) -> float:
        """The time by the clock of turns."""
        return self._clock()

    async def run(
        self, request: TurnRequest, client: Client, received: float | None = None
    ) -> bytes | None:
        """The answer's body, or None when the client got a stream.

        `received` is when the request's last byte was read, now by default. Raises RouterError,
        which is the answer unless the stream has begun, or ClientLeft.
        """
        record = SeenTurn(
            request,
            self._clock() if received is None else received,
            metrics=self._metrics,
            clock=self._clock,
            trace=self.tracer.turn(request.headers),
        )
        try:
            body = await self._legs(request, client, record)
            self._guard.saw(request, record)
            return body
        except asyncio.CancelledError:
            record.failed(_cut(client), has_begun=client.has_begun)
            raise
        except Exception as error:
            record.failed(error, has_begun=client.has_begun)
            raise
        finally:
            record.end()

    async def _legs(self, request: TurnRequest, client: Client, record: SeenTurn) -> bytes | None:
        avoid: set[str] = set()
        kv = self._held.turn(request)
        plan = self._plans.plan(request, kv)
        while True:
            prefilled = await self._direct(request, kv, plan, client, record) if not avoid else None
            if prefilled is None:
                prefilled = await self._prefill.run(request, kv, plan, client, record, avoid)
            if client.is_gone:
                raise ClientLeft("prefill")
            try:
                body = await self._decode.run(request, kv, plan, prefilled, client, record)
                plan.ended(record)
                return body
            except (Unreachable, EngineBusy) as error:
                failed = prefilled.decode
                if isinstance(error, Unreachable):
                    self._endpoints.suspect(failed, UNREACHABLE_PAUSE_S)
                else:
                    self._endpoints.busy(failed, error.retry_after_s or 0)
                if avoid or client.has_begun or not self._may_repeat(failed.name, record):
                    raise
                # D frees P's blocks when it refuses a request, so P's parameters are used up.
                avoid.add(failed.name)
                record.retried("decode")

    async def _direct(
        self, request: TurnRequest, kv: TurnKV, plan: Plan, client: Client, record: SeenTurn
    ) -> Prefilled | None:
        """The engine that computes the turn alone because it holds the history; None for P's."""
        if request.alone or not plan.has_choice:
            return None
        choice = self._endpoints.choose(holder=kv.holder)
        decision = plan.decide(choice, kv, record) if choice else None
        if decision is None or decision.way != "DIRECT" or choice is None:
            return None
        if client.is_gone:
            raise ClientLeft("before")
        with record.claiming():
            params = await kv.claim_direct()
        if isinstance(params, str):
            return None
        record.way = "DIRECT"
        return Prefilled(choice.decode, params)

    def _may_repeat(self, name: str, record: SeenTurn) -> bool:
        """Whether there is another D, and the budget for a second attempt."""
        other = self._endpoints.choose(avoid={name})
        if other is None or other.decode.name == name:
            return False
        if not self._retries.take():
            record.not_retried("decode")
            return False
        return True


def _cut(client: Client) -> ClientLeft | NoEndpoint:
    """Why a turn is cut: too many run on without a client, or the router ends."""
    if client.is_gone:
        return ClientLeft("stream" if client.has_begun else "decode")
    return NoEndpoint("This router is shutting down.")
