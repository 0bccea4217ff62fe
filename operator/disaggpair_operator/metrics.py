"""Numbers about the reconciles, in Prometheus' form."""

import time
from collections.abc import Awaitable, Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from disaggpair_operator.keys import Key

_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """Counters of one operator process, in a registry of their own."""

    def __init__(
        self,
        pairs: Callable[[], int],
        waiting: Callable[[], int],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`pairs` and `waiting` are asked at each scrape; `clock` gives seconds."""
        self.registry = CollectorRegistry()
        self._clock = clock
        self._reconciles = Counter(
            "disaggpair_reconciles",
            "Reconciles that ended, by result.",
            ["result"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "disaggpair_reconcile_seconds",
            "Duration of reconciles.",
            buckets=_BUCKETS,
            registry=self.registry,
        )
        for result in ("ok", "failed"):
            self._reconciles.labels(result)
        Gauge("disaggpair_pairs", "Pairs known.", registry=self.registry).set_function(pairs)
        Gauge(
            "disaggpair_queue_waiting", "Pairs that wait for a reconcile.", registry=self.registry
        ).set_function(waiting)

    def measured(
        self, work: Callable[[Key], Awaitable[float | None]]
    ) -> Callable[[Key], Awaitable[float | None]]:
        """The same work, counted and timed."""

        async def counted(key: Key) -> float | None:
            result, start = "failed", self._clock()
            try:
                again_s = await work(key)
                result = "ok"
                return again_s
            finally:
                self._seconds.observe(self._clock() - start)
                self._reconciles.labels(result).inc()

        return counted

    def serve(self, host: str, port: int) -> Callable[[], None]:
        """Answer /metrics from a thread of its own; returns what stops it."""
        server, thread = start_http_server(port, host, self.registry)

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return stop
