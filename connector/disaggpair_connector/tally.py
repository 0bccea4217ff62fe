"""What a scheduler half counts between two reports to /metrics. Pure.

vLLM carries the counts to the process that serves /metrics as lists of numbers by name, and adds
up what several engines or workers report.
"""

from collections.abc import Iterable, Mapping
from typing import Final, get_args

from disaggpair_connector.counters import Counters
from disaggpair_connector.handle import Refusal
from disaggpair_connector.lease import EndReason, State

PREFIX: Final = "disaggpair:"

LEASES: Final = "leases"
ENDED: Final = "leases_ended"
CLAIMS: Final = "claims"
VERIFIED: Final = "verified_tokens"
REFUSED: Final = "refused_reads"
DIGEST: Final = "digest_seconds"
BLOCK_SECONDS: Final = "lease_block_seconds"

LABELLED: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    LEASES: ("state", get_args(State)),
    ENDED: ("reason", get_args(EndReason)),
    CLAIMS: ("result", ("won", "lost")),
    REFUSED: ("reason", get_args(Refusal)),
}
"""Metrics with a label: its name and all its values."""

PLAIN: Final = (VERIFIED, DIGEST, BLOCK_SECONDS)


def key(metric: str, label: str = "") -> str:
    """Name of one series in a report."""
    return f"{PREFIX}{metric}|{label}" if label else f"{PREFIX}{metric}"


KEYS: Final = (
    *(key(metric, value) for metric, (_, values) in LABELLED.items() for value in values),
    *(key(metric) for metric in PLAIN),
)
"""All names that a report can have."""


class Tally:
    """Counts since the last report."""

    def __init__(self) -> None:
        self._counts: dict[str, list[float]] = {}
        self._reported: dict[str, float] = {}

    def refused(self, reason: Refusal) -> None:
        """Tokens that a peer was said to hold are not read."""
        self._add(key(REFUSED, reason), 1)

    def verified(self, tokens: int) -> None:
        """Tokens are read whose digests were compared."""
        if tokens > 0:
            self._add(key(VERIFIED), tokens)

    def digest(self, seconds: float) -> None:
        """Digests were computed."""
        self._add(key(DIGEST), seconds)

    def leases(self, counters: Counters, states: Mapping[State, int]) -> None:
        """How the leases stand, from counters that only grow and gauges."""
        totals = {
            key(CLAIMS, "won"): counters.claims_won,
            key(CLAIMS, "lost"): counters.claims_lost,
            key(BLOCK_SECONDS): counters.block_seconds,
            **{key(ENDED, reason): count for reason, count in counters.ended.items()},
        }
        for name, total in totals.items():
            if (more := total - self._reported.get(name, 0)) > 0:
                self._add(name, more)
                self._reported[name] = total
        for state, count in states.items():
            name = key(LEASES, state)
            if count != self._reported.get(name, 0):
                self._counts[name] = [count]
                self._reported[name] = count

    def take(self) -> dict[str, list[float]]:
        """The counts since the last call, by name."""
        counts, self._counts = self._counts, {}
        return counts

    def _add(self, name: str, value: float) -> None:
        self._counts.setdefault(name, []).append(value)


def series(report: Mapping[str, Iterable[float]], metric: str) -> dict[str, list[float]]:
    """The values of one metric in a report, by label."""
    values = LABELLED[metric][1]
    found = {value: list(report.get(key(metric, value), ())) for value in values}
    return {value: numbers for value, numbers in found.items() if numbers}
