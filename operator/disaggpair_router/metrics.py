"""The router's counters, in a registry of their own so that tests see one router only."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_PREFIX = "disaggpair_router"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Metrics:
    """One attribute per series; label values are short fixed words."""

    content_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.turns = self._counter("turns", "Turns answered, by the way they ran.", "way")
        self.ways = self._counter(
            "ways",
            "Turns that had a choice: the way that was taken, and why.",
            "way",
            "reason",
        )
        self.lookups = self._counter(
            "kv_lookups", "Turns by whether P read D's blocks, and why not.", "result", "reason"
        )
        self.fallbacks = self._counter(
            "fallbacks", "Turns that one engine answered although two should have.", "reason"
        )
        self.retries = self._counter("retries", "Legs that were sent a second time.", "leg")
        self.refused_retries = self._counter(
            "retries_refused", "Legs that were not sent again: there were too many.", "leg"
        )
        self.disconnects = self._counter(
            "client_disconnects", "Clients that left before their answer was complete.", "stage"
        )
        self.errors = self._counter("errors", "Turns that ended in an error.", "kind")
        self.releases = self._counter(
            "handle_releases", "Handles that nobody will use, by what became of them.", "result"
        )
        self.leg_seconds = self._histogram("leg_seconds", "Duration of one leg.", "leg")
        self.ttft_seconds = self._histogram(
            "ttft_seconds", "From the request to the first byte of the answer."
        )
        self.in_flight = Gauge(
            f"{_PREFIX}_in_flight", "Legs in flight.", ["role"], registry=self.registry
        )
        self.handles = Gauge(
            f"{_PREFIX}_handles", "Handles that wait for their next turn.", registry=self.registry
        )

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"{_PREFIX}_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, *labels: str) -> Histogram:
        return Histogram(
            f"{_PREFIX}_{name}", text, labels, buckets=_SECONDS, registry=self.registry
        )

    def exposition(self) -> bytes:
        """The text format of /metrics."""
        return generate_latest(self.registry)
