"""The router's series, in a registry of their own so that tests see one router only.

docs/metrics.md is a table of them, which a test compares with `Metrics.series`. Every label has a
fixed set of values: nothing that a client sends can make another one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Final, Generic, Literal, TypeVar, get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.metrics import MetricWrapperBase

from disaggpair_router.errors import ERROR_CODES, DisconnectStage
from disaggpair_router.session import MissReason
from disaggpair_router.tenants import Refusal
from disaggpair_router.turnlog import Way as TurnWay
from disaggpair_router.way.choice import Reason, Way

Kind = Literal["counter", "gauge", "histogram"]
Leg = Literal["prefill", "decode"]
Part = Literal["before", "between", "after"]
"""The router's own time: before the first leg, between the legs, after D's first byte."""
EngineState = Literal["ready", "unready", "busy", "suspect", "stuck"]
"""`busy`: ready, and has asked for time; `suspect`: ready, and left alone for a time; `stuck`:
answers nobody, see `canary`."""
ListenerState = Literal["followed", "silent"]
Fallback = Literal["no_prefill", "no_decode", "no_params", "prefill_failed"]
ClaimResult = Literal["won", "gone", "claimed", "unreachable"]
"""`gone`: the lease had ended; `claimed`: another router has it."""

GuardResult = Literal["match", "mismatch", "unstable", "uncached", "skipped", "failed"]
"""See `guard.compare.Verdict`; `skipped`: there was too much to do, `failed`: an engine did not
tell."""

_PREFIX: Final = "disaggpair_router"
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_SHORT_SECONDS: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
)
"""For what should take less than a millisecond or a few."""
_LEGS: Final[tuple[Leg, ...]] = get_args(Leg)
_WAYS: Final[tuple[TurnWay, ...]] = get_args(TurnWay)
_NO_LABELS: Final[Mapping[str, tuple[str, ...]]] = {}


@dataclass(frozen=True, slots=True)
class Series:
    """What is known of a series before anything was counted."""

    name: str
    """As it is scraped; a histogram's without the endings of its parts."""
    kind: Kind
    text: str
    labels: Mapping[str, tuple[str, ...]]
    """All values that each label can have."""


M = TypeVar("M", bound=MetricWrapperBase)


class Labelled(Generic[M]):
    """A series with labels; keeps its parts, since a turn counts a dozen.

    The library looks for a part under a lock, after it has made strings of the values.
    """

    def __init__(self, metric: M) -> None:
        self._metric = metric
        self._parts: dict[tuple[str, ...], M] = {}

    def collect(self) -> Iterable[Metric]:
        """All its parts as they are now."""
        return self._metric.collect()

    def labels(self, *values: str) -> M:
        """The part with these values."""
        part = self._parts.get(values)
        if part is None:
            part = self._parts[values] = self._metric.labels(*values)
        return part


class Metrics:
    """One attribute per series."""

    content_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library annotates others only
        self.registry = CollectorRegistry()
        self.series: list[Series] = []
        self._turns()
        self._legs()
        self._held()
        self._state()

    def _turns(self) -> None:
        self.turns = self._counter(
            "turns", "Turns that have ended, by the way they ran.", {"way": _WAYS}
        )
        self.lookups = self._counter(
            "kv_lookups",
            "Turns by whether D's blocks were used again, and why not.",
            {"result": ("hit", "miss"), "reason": ("", *get_args(MissReason))},
            preset=False,
        )
        # Without it a share of hits would have no value until the first one.
        self.lookups.labels("hit", "")
        self.ways = self._counter(
            "ways",
            "Turns that had a choice: the way that was taken, and why.",
            {"way": get_args(Way), "reason": get_args(Reason)},
            preset=False,
        )
        self.ttft_seconds = Labelled(
            self._histogram(
                "ttft_seconds",
                "From the request's last byte to the first byte of a streamed answer.",
                {"way": _WAYS},
            )
        )
        self.added_seconds = Labelled(
            self._histogram(
                "added_seconds",
                "The router's own part of a turn's time: from the request's last byte to its first "
                "leg, the claim included; between the legs; from D's first byte to the client's.",
                {"part": get_args(Part)},
                _SHORT_SECONDS,
            )
        )
        self.fallbacks = self._counter(
            "fallbacks",
            "Turns that one engine answered although two should have.",
            {"reason": get_args(Fallback)},
        )
        self.errors = self._counter(
            "errors",
            "Requests that ended in an error, turns and others.",
            {"kind": ERROR_CODES},
            preset=False,
        )
        self.disconnects = self._counter(
            "client_disconnects",
            "Clients that left before their answer was complete.",
            {"stage": get_args(DisconnectStage)},
        )
        self.refusals = self._counter(
            "refusals",
            "Requests refused at the door, before their body was read.",
            {"reason": (*get_args(Refusal), "bad_header", "overloaded")},
        )

    def _legs(self) -> None:
        self.leg_seconds = Labelled(
            self._histogram("leg_seconds", "Duration of one leg.", {"leg": _LEGS})
        )
        self.retries = self._counter(
            "retries", "Legs that were sent a second time.", {"leg": _LEGS}
        )
        self.refused_retries = self._counter(
            "retries_refused", "Legs that were not sent again: there were too many.", {"leg": _LEGS}
        )
        self.in_flight = Labelled(self._gauge("in_flight", "Legs in flight.", {"role": _LEGS}))

    def _held(self) -> None:
        self.claims = self._counter(
            "claims",
            "Leases that D was asked for, and what it said.",
            {"purpose": ("read", "direct"), "result": get_args(ClaimResult)},
        )
        self.claim_seconds = self._histogram(
            "claim_seconds", "From a claim to D's answer.", {}, _SHORT_SECONDS
        )
        self.releases = self._counter(
            "handle_releases",
            "Handles and leases that nobody will use, by what became of them.",
            {"result": ("released", "failed", "impossible", "dropped", "ended")},
        )
        self.handles = self._gauge("handles", "Handles or leases that wait for their next turn.")
        self.leases = self._gauge(
            "leases",
            "Leases that are known, by their state in D.",
            {"state": ("granted", "claimed", "reading")},
        )
        self.listeners = self._gauge(
            "lease_listeners",
            "Lease listeners by whether they are followed.",
            {"state": get_args(ListenerState)},
        )
        self.pauses = self._gauge("pauses", "Pairs of engines that get no handles for a time.")

    def _state(self) -> None:
        self.engines = self._gauge(
            "engines",
            "Engines by role and by whether they get turns.",
            {"role": _LEGS, "state": get_args(EngineState)},
        )
        self.guard_checks = self._counter(
            "guard_checks",
            "Turns that were computed again, by what was found.",
            {"result": get_args(GuardResult)},
        )
        self.abandoned = self._gauge("abandoned_turns", "Turns that run on without a client.")
        self.loop_delay_seconds = self._histogram(
            "event_loop_delay_seconds",
            "How late the event loop is, sampled four times a second.",
            {},
            _SHORT_SECONDS,
        )

    def _declare(
        self, name: str, kind: Kind, text: str, labels: Mapping[str, tuple[str, ...]]
    ) -> str:
        ending = "_total" if kind == "counter" else ""
        self.series.append(Series(f"{_PREFIX}_{name}{ending}", kind, text, labels))
        return f"{_PREFIX}_{name}"

    def _counter(
        self, name: str, text: str, labels: Mapping[str, tuple[str, ...]], *, preset: bool = True
    ) -> Labelled[Counter]:
        """With `preset` all its values are there from the start, so that the first event shows."""
        full = self._declare(name, "counter", text, labels)
        counter = Counter(full, text, list(labels), registry=self.registry)
        for values in product(*labels.values()) if preset else ():
            counter.labels(*values)
        return Labelled(counter)

    def _gauge(
        self, name: str, text: str, labels: Mapping[str, tuple[str, ...]] = _NO_LABELS
    ) -> Gauge:
        full = self._declare(name, "gauge", text, labels)
        return Gauge(full, text, list(labels), registry=self.registry)

    def _histogram(
        self,
        name: str,
        text: str,
        labels: Mapping[str, tuple[str, ...]],
        buckets: Iterable[float] = _SECONDS,
    ) -> Histogram:
        full = self._declare(name, "histogram", text, labels)
        return Histogram(full, text, list(labels), buckets=tuple(buckets), registry=self.registry)

    def exposition(self) -> bytes:
        """The text format of /metrics."""
        return generate_latest(self.registry)
