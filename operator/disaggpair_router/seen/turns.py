"""A turn's record with the means to note what happens to it: for its line, metrics and trace.

`turn` makes one for each turn and the legs tell it what they do; nothing here changes what a turn
does. Times are of one clock.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from disaggpair_router.errors import ClientLeft, EngineRefused, RouterError
from disaggpair_router.metrics import Fallback, Leg, Metrics, Part
from disaggpair_router.pick import Endpoint
from disaggpair_router.request import TurnRequest
from disaggpair_router.seen.tracing import NO_TRACE, TurnTrace
from disaggpair_router.session import MissReason
from disaggpair_router.turnlog import TurnRecord, Way, log_turn

_CLIENT_CLOSED = 499
"""Status in the log of a turn whose client left."""


@dataclass(frozen=True, slots=True)
class SentLeg:
    """Where a leg went."""

    engine: Endpoint
    headers: Mapping[str, str]
    """Without the context of its trace."""


class SeenTurn(TurnRecord):
    """The record of a turn that runs.

    Args:
        request: of the turn.
        received: when its last byte was read.
        metrics: what is counted.
        trace: where spans go.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        request: TurnRequest,
        received: float,
        *,
        metrics: Metrics,
        clock: Callable[[], float],
        trace: TurnTrace = NO_TRACE,
    ) -> None:
        super().__init__(
            request.request_id,
            request.conversation.label,
            received,
            api=request.api,
            stream=request.stream,
            tenant=request.tenant,
            trace=trace.id,
        )
        self._metrics = metrics
        self._clock = clock
        self._trace = trace
        self._prefilled: float | None = None
        self._leg: Leg = "prefill"
        self._leg_sent = received
        self._arrived: float | None = None
        self._told: Way = "NONE"
        self.legs: dict[Leg, SentLeg] = {}
        """Those that were sent last."""

    # -- what legs tell ------------------------------------------------------------------------

    @contextmanager
    def claiming(self) -> Iterator[None]:
        """A handle or lease is looked for while the block runs."""
        began = self._clock()
        try:
            with self._trace.claim():
                yield
        finally:
            self.claim_s = (self.claim_s or 0.0) + self._clock() - began

    @contextmanager
    def leg(
        self, leg: Leg, engine: Endpoint, headers: Mapping[str, str]
    ) -> Iterator[Mapping[str, str]]:
        """A leg is in flight while the block runs; gives the headers to send it with."""
        began = self._clock()
        self.legs[leg] = SentLeg(engine, headers)
        self._leg = leg
        if self.way != self._told:
            self._told = self.way
            self._trace.event("way", way=self.way, why=self.why)
        try:
            with self._trace.leg(leg, headers) as sent:
                yield sent
        finally:
            ended = self._clock()
            if leg == "prefill":
                self.prefill_s = ended - began
                self._prefilled = ended
            self._metrics.leg_seconds.labels(leg).observe(ended - began)

    def sent(self) -> None:
        """The leg has been given to the engine's connection."""
        now = self._clock()
        if self.before_s is None:
            self.before_s = now - self.started
            self._added("before", self.before_s)
        elif self._prefilled is not None and self.between_s is None and self._leg == "decode":
            self.between_s = now - self._prefilled
            self._added("between", self.between_s)
        self._leg_sent = now

    def answered(self) -> None:
        """D's first byte has come, or the whole of an answer that is not streamed."""
        if self._arrived is None:
            self._arrived = self._clock()
            self.decode_first_byte_s = self._arrived - self._leg_sent

    def first_byte(self) -> None:
        """The client gets its first byte now."""
        if self.first_byte_s is None:
            self.first_byte_s = self._clock() - self.started
            self._metrics.ttft_seconds.labels(self.way).observe(self.first_byte_s)
            self._trace.event("first_byte")

    def missed(self, reason: MissReason) -> None:
        """No handle is used; the first reason is the one that is told."""
        self.miss = self.miss or reason
        self._trace.event("miss", reason=reason)

    def retried(self, leg: Leg) -> None:
        """A leg is sent a second time."""
        self.retries += 1
        self._metrics.retries.labels(leg).inc()
        self._trace.event("retry", leg=leg)

    def not_retried(self, leg: Leg) -> None:
        """A leg is not sent again: there were too many."""
        self._metrics.refused_retries.labels(leg).inc()
        self._trace.event("retry_refused", leg=leg)

    def fell_back(self, reason: Fallback) -> None:
        """One engine answers although two should have."""
        self.way = "SINGLE"
        self.missed("no_decode" if reason == "no_decode" else "no_prefill")
        self._metrics.fallbacks.labels(reason).inc()
        self._trace.event("fallback", reason=reason)

    # -- how it ends ---------------------------------------------------------------------------

    def failed(self, error: BaseException, *, has_begun: bool) -> None:
        """The turn ends with an exception; `has_begun`: the client has a status already."""
        if isinstance(error, ClientLeft):
            self.status, self.error = _CLIENT_CLOSED, f"client_left_{error.stage}"
            self._metrics.disconnects.labels(error.stage).inc()
            return
        if isinstance(error, EngineRefused) and self.miss == "unsupported":
            # The engine's word stands: what it cannot read, such as a body without messages, is no
            # kind of turn.
            self.miss = None
        kind = error if isinstance(error, RouterError) else RouterError
        self.status = 200 if has_begun and kind is error else kind.status
        self.error = kind.code
        self._metrics.errors.labels(kind.code).inc()

    def end(self) -> None:
        """The turn is over: count it, write its line, end its trace."""
        if not (self.stream or self.error):
            self.delivered()
        self.total_s = self._clock() - self.started
        self._metrics.turns.labels(self.way).inc()
        if self.lookup is not None:
            self._metrics.lookups.labels(self.lookup.lower(), self.miss or "").inc()
        self._trace.end(self)
        log_turn(self)

    def delivered(self) -> None:
        """The client's connection has taken its first byte."""
        if self._arrived is not None and self.after_s is None:
            self.after_s = self._clock() - self._arrived
            self._added("after", self.after_s)

    def _added(self, part: Part, seconds: float) -> None:
        self._metrics.added_seconds.labels(part).observe(seconds)
