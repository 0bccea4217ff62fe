"""The engines of the pair as they are now, and how busy this router keeps each.

`probe` (static URLs) and `pods` (a watch) report what they see; `turn` asks for a choice. The
registry tells its listener when an engine's memory is gone, so that no handle into it survives.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from prometheus_client import Gauge

from disaggpair_router.metrics import Metrics
from disaggpair_router.pick import Choice, Endpoint, may_pair, pick

Lost = Callable[[str, str | None], object]
"""Called with an endpoint's name and its present incarnation, None when there is none."""

_LONGEST_BUSY_S: Final = 30.0
"""An engine may ask for more time, but is tried again after so long."""


class Endpoints:
    """The current endpoints. Written by one source, read by every turn, in one event loop."""

    def __init__(
        self,
        *,
        revision: str,
        single_engine: bool,
        metrics: Metrics,
        clock: Callable[[], float],
        max_imbalance: int | None = None,
    ) -> None:
        self._clock = clock
        self._max_imbalance = max_imbalance
        self._suspects: dict[str, float] = {}
        self._busy: dict[str, float] = {}
        self._revision = revision
        self.single_engine = single_engine
        """Whether one engine may serve a turn while no pair is ready."""
        self._metrics = metrics
        self._lost: Lost = lambda _name, _incarnation: None
        self._known: dict[str, Endpoint] = {}
        self._in_flight: dict[str, int] = {}
        self._answered: dict[str, float] = {}
        self._stuck: set[tuple[str, str]] = set()
        self._listeners: list[Callable[[], object]] = []

    def on_loss(self, listener: Lost) -> None:
        """Call this when an engine's memory is gone."""
        self._lost = listener

    def on_change(self, listener: Callable[[], object]) -> None:
        """Call this whenever an engine comes, goes, or becomes another one."""
        self._listeners.append(listener)

    def __iter__(self) -> Iterator[Endpoint]:
        return iter(tuple(self._known.values()))

    def get(self, name: str) -> Endpoint | None:
        """The endpoint of this name as it is now."""
        return self._known.get(name)

    def put(self, endpoint: Endpoint) -> None:
        """Add an endpoint or replace what is known of it."""
        before = self._known.get(endpoint.name)
        self._known[endpoint.name] = endpoint
        is_new = before is None or before.incarnation != endpoint.incarnation
        if endpoint.ready and (before is None or is_new or not before.ready):
            self.answered(endpoint)
        if before != endpoint:
            self._tell()
        if before is not None and before.incarnation != endpoint.incarnation:
            self._lost(endpoint.name, endpoint.incarnation)

    def remove(self, name: str) -> None:
        """Forget an endpoint; nothing happens when it is not known."""
        self._suspects.pop(name, None)
        self._busy.pop(name, None)
        self._answered.pop(name, None)
        self._stuck = {life for life in self._stuck if life[0] != name}
        if self._known.pop(name, None) is not None:
            self._lost(name, None)
            self._tell()

    def replace_all(self, endpoints: Iterable[Endpoint]) -> None:
        """Make the given endpoints the only ones."""
        present = {endpoint.name: endpoint for endpoint in endpoints}
        for name in self._known.keys() - present.keys():
            self.remove(name)
        for endpoint in present.values():
            self.put(endpoint)

    def choose(
        self, *, holder: str = "", avoid: Collection[str] = (), single: bool = False
    ) -> Choice | None:
        """Engines for a turn; None when it has to be refused."""
        choice = pick(
            [endpoint for endpoint in self._known.values() if not self.is_suspect(endpoint)],
            self._in_flight,
            revision=self._revision,
            holder=holder,
            max_imbalance=self._max_imbalance,
            avoid={*avoid, *self._asking_for_time()},
            single=single,
        )
        if choice and not choice.is_pair and not single and not self.single_engine:
            return None
        return choice

    def suspect(self, endpoint: Endpoint, seconds: float) -> None:
        """Choose an engine no more for a time: it did not take or did not answer a request."""
        self._suspects[endpoint.name] = self._clock() + seconds

    def busy(self, endpoint: Endpoint, seconds: float) -> None:
        """Choose an engine only if there is no other one: it asked to come back after so long."""
        self._busy[endpoint.name] = self._clock() + min(seconds, _LONGEST_BUSY_S)

    def answered(self, endpoint: Endpoint) -> None:
        """An engine has answered a request."""
        self._answered[endpoint.name] = self._clock()

    def last_answer(self, endpoint: Endpoint) -> float:
        """When an engine answered last; long ago when it never did."""
        return self._answered.get(endpoint.name, float("-inf"))

    def set_stuck(self, endpoint: Endpoint, *, stuck: bool) -> bool:
        """Choose an engine no more, until it is said not to be stuck; whether that is new."""
        life = (endpoint.name, endpoint.incarnation)
        if stuck == (life in self._stuck):
            return False
        if stuck:
            self._stuck.add(life)
        else:
            self._stuck.remove(life)
        return True

    def is_stuck(self, endpoint: Endpoint) -> bool:
        """Whether this life of an engine is known to answer nothing."""
        return (endpoint.name, endpoint.incarnation) in self._stuck

    @property
    def can_serve(self) -> bool:
        """Whether a turn that came now would be tried."""
        return self.choose() is not None

    def still_or_other(self, prefill: Endpoint, decode: Endpoint) -> Endpoint:
        """`decode` as it is now, or another one that can read from `prefill` if it went away."""
        fitting = [
            endpoint
            for endpoint in self._known.values()
            if endpoint.role == "decode" and may_pair(prefill, endpoint)
        ]
        choice = pick(
            [endpoint for endpoint in fitting if not self.is_suspect(endpoint)],
            self._in_flight,
            holder=decode.name,
            single=True,
        )
        return choice.decode if choice else decode

    def reader_of(self, decode: Endpoint) -> Endpoint | None:
        """A ready prefill engine that can reach a decode engine's blocks."""
        readers = [
            endpoint
            for endpoint in self._known.values()
            if endpoint.role == "prefill"
            and may_pair(endpoint, decode)
            and not self.is_suspect(endpoint)
        ]
        choice = pick(readers, self._in_flight, single=True)
        return choice.decode if choice else None

    def in_flight(self, name: str) -> int:
        """Legs of this router at an engine, those that are going to come included."""
        return self._in_flight.get(name, 0)

    def leg(self, endpoint: Endpoint) -> "Leg":
        """Count one leg as in flight at an engine while the block runs."""
        return Leg(self, endpoint, self._metrics.in_flight.labels(endpoint.role))

    @contextmanager
    def reserved(self, endpoint: Endpoint) -> Iterator[None]:
        """Count an engine as busier while the block runs, because a leg is going to come."""
        self.add_leg(endpoint.name)
        try:
            yield
        finally:
            self.drop_leg(endpoint.name)

    def add_leg(self, name: str) -> None:
        """One leg more is at an engine."""
        self._in_flight[name] = self._in_flight.get(name, 0) + 1

    def drop_leg(self, name: str) -> None:
        """One leg less."""
        left = self._in_flight[name] - 1
        if left:
            self._in_flight[name] = left
        else:
            del self._in_flight[name]

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()

    def _asking_for_time(self) -> Collection[str]:
        if self._busy:
            now = self._clock()
            self._busy = {name: until for name, until in self._busy.items() if now < until}
        return self._busy

    def is_busy(self, endpoint: Endpoint) -> bool:
        """Whether an engine has asked to come back later."""
        return endpoint.name in self._asking_for_time()

    def is_suspect(self, endpoint: Endpoint) -> bool:
        """Whether a ready engine is left alone now."""
        if self.is_stuck(endpoint):
            return True
        until = self._suspects.get(endpoint.name)
        if until is None:
            return False
        if self._clock() < until:
            return True
        del self._suspects[endpoint.name]
        return False


class Leg:
    """A leg in flight, from entering the block to leaving it."""

    __slots__ = ("_endpoint", "_endpoints", "_gauge")

    def __init__(self, endpoints: Endpoints, endpoint: Endpoint, gauge: Gauge) -> None:
        self._endpoints, self._endpoint, self._gauge = endpoints, endpoint, gauge

    def __enter__(self) -> None:
        self._gauge.inc()
        self._endpoints.add_leg(self._endpoint.name)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._endpoints.drop_leg(self._endpoint.name)
        self._gauge.dec()
        if kind is None:
            self._endpoints.answered(self._endpoint)
