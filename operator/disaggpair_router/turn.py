"""One turn: P leg, D leg, and one repetition of both while the client has seen nothing.

This module only orders; `prefill` and `decode` run the legs, `app` answers the client.
"""

from collections.abc import Callable

from disaggpair_router.client import Client
from disaggpair_router.decode import DecodeLeg
from disaggpair_router.endpoints import Endpoints
from disaggpair_router.errors import (
    ClientLeft,
    EngineBusy,
    RouterError,
    Unreachable,
)
from disaggpair_router.held import HeldKV, TurnKV
from disaggpair_router.metrics import Metrics
from disaggpair_router.plans import Plan, Plans
from disaggpair_router.prefill import UNREACHABLE_PAUSE_S, Prefilled, PrefillLeg
from disaggpair_router.request import TurnRequest
from disaggpair_router.retries import RetryBudget
from disaggpair_router.turnlog import TurnRecord, log_turn

_CLIENT_CLOSED = 499
"""Status in the log of a turn whose client left."""


class Turns:
    """Runs turns; one object serves all of them."""

    def __init__(
        self,
        *,
        prefill: PrefillLeg,
        decode: DecodeLeg,
        held: HeldKV,
        plans: Plans,
        retries: RetryBudget,
        endpoints: Endpoints,
        metrics: Metrics,
        clock: Callable[[], float],
    ) -> None:
        self._held = held
        self._plans = plans
        self._retries = retries
        self._prefill = prefill
        self._decode = decode
        self._endpoints = endpoints
        self._metrics = metrics
        self._clock = clock

    async def run(self, request: TurnRequest, client: Client) -> bytes | None:
        """The answer's body, or None when the client got a stream.

        Raises RouterError, which is the answer unless the stream has begun, or ClientLeft.
        """
        record = TurnRecord(request.request_id, request.conversation.label, self._clock())
        try:
            return await self._legs(request, client, record)
        except ClientLeft as left:
            record.status = _CLIENT_CLOSED
            record.error = f"client_left_{left.stage}"
            self._metrics.disconnects.labels(left.stage).inc()
            raise
        except RouterError as error:
            record.status = 200 if client.has_begun else error.status
            record.error = error.code
            self._metrics.errors.labels(error.code).inc()
            raise
        except Exception:
            record.status, record.error = RouterError.status, RouterError.code
            self._metrics.errors.labels(RouterError.code).inc()
            raise
        finally:
            self._finish(record)

    async def _legs(self, request: TurnRequest, client: Client, record: TurnRecord) -> bytes | None:
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
                if avoid or client.has_begun or not self._may_repeat(failed.name):
                    raise
                # D frees P's blocks when it refuses a request, so P's parameters are used up.
                avoid.add(failed.name)
                self._metrics.retries.labels("decode").inc()

    async def _direct(
        self, request: TurnRequest, kv: TurnKV, plan: Plan, client: Client, record: TurnRecord
    ) -> Prefilled | None:
        """The engine that computes the turn alone because it holds the history; None for P's."""
        choice = None if request.alone else self._endpoints.choose(holder=kv.holder)
        decision = plan.decide(choice, kv, record) if choice else None
        if decision is None or decision.way != "DIRECT" or choice is None:
            return None
        if client.is_gone:
            raise ClientLeft("before")
        params = await kv.claim_direct()
        if isinstance(params, str):
            return None
        record.way = "DIRECT"
        return Prefilled(choice.decode, params)

    def _may_repeat(self, name: str) -> bool:
        """Whether there is another D, and the budget for a second attempt."""
        other = self._endpoints.choose(avoid={name})
        if other is None or other.decode.name == name:
            return False
        if not self._retries.take():
            self._metrics.refused_retries.labels("decode").inc()
            return False
        return True

    def _finish(self, record: TurnRecord) -> None:
        record.total_s = self._clock() - record.started
        self._metrics.turns.labels(record.way).inc()
        if record.lookup is not None:
            self._metrics.lookups.labels(record.lookup.lower(), record.miss or "").inc()
        log_turn(record)
