"""Counts of what became of turns, by operation, and their table. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Final

from disaggpair_bed.hostile.distribution import TOLERANCE
from disaggpair_bed.hostile.turns import Played

SLOW_S: Final = 5.0
"""A leg of the bed's model takes some tenths of a second."""


@dataclass
class Counts:
    """Of one operation."""

    turns: int = 0
    """Turns played, retries not counted."""
    usable: int = 0
    """Tokens that P might read from D: what a handle that is good holds of the prompt."""
    read: int = 0
    """Tokens that it read."""
    wrong: int = 0
    """Turns of which a distribution is not that of a recompute, retries counted."""
    unsafe: int = 0
    """Turns in which P read more tokens than the handle held of its prompt."""
    poisoned: int = 0
    """Turns after which a request without a handle was wrong."""
    refused: int = 0
    """Turns of which a leg was answered with 4xx."""
    failed: int = 0
    """Turns of which a leg was answered with 5xx or not to its end."""
    hung: int = 0
    """Turns of which a leg got no answer in time."""
    died: int = 0
    """Engines that ended or answered nobody any more."""
    slow: int = 0
    """Turns of which a leg took more than `SLOW_S` and was answered."""

    @property
    def faults(self) -> int:
        """What must not happen with any input."""
        return self.wrong + self.unsafe + self.poisoned + self.failed + self.hung + self.died


class Record:
    """All turns of a run."""

    def __init__(self) -> None:
        self.counts: dict[str, Counts] = {}
        self.distances: dict[str, list[float]] = {}
        """Of the turns that were right, by operation."""

    @property
    def turns(self) -> int:
        """Turns played so far."""
        return sum(counts.turns for counts in self.counts.values())

    @property
    def total(self) -> Counts:
        """The sum over all operations."""
        total = Counts()
        for counts in self.counts.values():
            for field in fields(Counts):
                added = getattr(total, field.name) + getattr(counts, field.name)
                setattr(total, field.name, added)
        return total

    def add(self, operation: str, played: Iterable[Played], *, usable: int, read: int) -> Counts:
        """Count turns that were played together, and return what they add.

        Args:
            operation: what they are counted under.
            played: the turns.
            usable: the most tokens that P might read in all of them.
            read: what it read.
        """
        added = Counts(usable=usable, read=read, unsafe=int(read > usable))
        for one in played:
            added.turns += 1
            _count(added, one)
        counts = self.counts.setdefault(operation, Counts())
        for field in fields(Counts):
            grown = getattr(counts, field.name) + getattr(added, field.name)
            setattr(counts, field.name, grown)
        self.distances.setdefault(operation, []).extend(
            one.distance for one in played if one.distance is not None and not is_wrong(one)
        )
        return added

    def table(self) -> str:
        """Markdown, a line for each operation and one for all."""
        names = [field.name for field in fields(Counts)]
        lines = [
            f"| operation | {' | '.join(names)} | largest distance of a right turn |",
            f"|---|{'---|' * len(names)}---|",
        ]
        everything = [distance for some in self.distances.values() for distance in some]
        rows = [
            *(
                (operation, counts, self.distances[operation])
                for operation, counts in self.counts.items()
            ),
            ("all", self.total, everything),
        ]
        for operation, counts, distances in rows:
            values = " | ".join(str(getattr(counts, name)) for name in names)
            lines.append(f"| {operation} | {values} | {max(distances, default=0):.4f} |")
        return "\n".join(lines)


def is_wrong(played: Played) -> bool:
    """Whether a distribution of the turn is not that of a recompute."""
    return played.distance is not None and played.distance > TOLERANCE


def _count(added: Counts, played: Played) -> None:
    outcomes = {leg.outcome for leg in played.legs}
    added.refused += "refused" in outcomes
    added.failed += bool({"failed", "gone"} & outcomes)
    added.hung += "hung" in outcomes
    added.slow += any(leg.answered and leg.seconds > SLOW_S for leg in played.legs)
    added.poisoned += played.poisoned
    _count_of_engines(added, played)
    if played.retry is not None:
        _count_of_engines(added, played.retry)
        added.failed += not played.retry.answered


def _count_of_engines(added: Counts, played: Played) -> None:
    added.wrong += is_wrong(played)
    added.died += len(played.died) + len(played.stuck)
