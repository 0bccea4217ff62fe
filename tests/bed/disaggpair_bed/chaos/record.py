"""Counts of a run, and its table."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from disaggpair_bed.chaos.client import Came
from disaggpair_bed.chaos.talk import Shot
from disaggpair_bed.chaos.truth import Said

_COLUMNS: Final = ("right", "error", "broken", "cut", "left", "wrong", "silent", "odd")
_FAULTS: Final = ("wrong", "silent", "odd")

_ENDED_BADLY: Final = ("error", "abort")
"""Reasons that an engine gives for an end under status 200."""


@dataclass
class Record:
    """What came of every request."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By kind of turn and by what came of it."""
    codes: Counter[str] = field(default_factory=Counter)
    """Errors by their code."""
    events: Counter[str] = field(default_factory=Counter)
    """What was done to engines and routers."""
    router: Counter[str] = field(default_factory=Counter)
    """What the routers counted."""
    faults: list[str] = field(default_factory=list)
    """Sentences on what must not be."""
    slowest_s: float = 0.0

    def took(self, shot: Shot, came: Came, truth: tuple[Said, ...] | None) -> str:
        """Take in what came back; what it was."""
        found = _judged(shot, came, truth)
        self.counts[shot.kind, found] += 1
        self.slowest_s = max(self.slowest_s, came.seconds)
        if came.code:
            self.codes[came.code] += 1
        if found in _FAULTS:
            self.faults.append(f"{found}: a turn of kind {shot.kind}: {came} instead of {truth}")
        return found

    @property
    def turns(self) -> int:
        """Requests that were sent."""
        return self.counts.total()

    def of(self, found: str) -> int:
        """Requests of which that came."""
        return sum(count for (_, what), count in self.counts.items() if what == found)

    def table(self) -> str:
        """Kinds of turns by what came of them, then what was done and counted."""
        kinds = sorted({kind for kind, _ in self.counts})
        rows: list[tuple[str, ...]] = [("", *_COLUMNS)]
        rows += [(kind, *(str(self.counts[kind, one] or "") for one in _COLUMNS)) for kind in kinds]
        rows.append(("all", *(str(self.of(one) or "") for one in _COLUMNS)))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(
                cell.ljust(width) if at == 0 else cell.rjust(width)
                for at, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in rows
        ]
        lines += ["", *_listed("done", self.events), *_listed("errors", self.codes)]
        lines += [*_listed("routers", self.router), f"slowest: {self.slowest_s:.1f} s"]
        return "\n".join(lines)


def _judged(shot: Shot, came: Came, truth: tuple[Said, ...] | None) -> str:
    if came.outcome == "answered":
        if truth is None:
            return "wrong"
        if any(one.finish in _ENDED_BADLY for one in came.said):
            return "broken" if _is_beginning(came.said, truth) else "wrong"
        return "right" if came.said == truth else "wrong"
    if came.outcome in ("broken", "cut"):
        return came.outcome if truth is None or _is_beginning(came.said, truth) else "wrong"
    if came.outcome == "error" and not came.code:
        return "odd"
    return came.outcome


def _is_beginning(said: tuple[Said, ...], truth: tuple[Said, ...]) -> bool:
    return all(whole.begins_with(part) for part, whole in zip(said, truth, strict=False))


def _listed(name: str, counts: Counter[str]) -> list[str]:
    shown = ", ".join(f"{what} {count}" for what, count in sorted(counts.items()))
    return [f"{name}: {shown}"] if shown else []
