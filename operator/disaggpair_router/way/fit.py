"""Two estimators that follow what is observed and cannot leave their bounds. Pure.

`Fit` learns a multiplier m_i for each part of a model. A part is the seconds x_i that it
contributes by the prior, so a prediction is the sum of m_i * x_i, and every m_i starts at 1. It is
a Kalman filter whose state, the multipliers, drifts:

    gain = C x / (x' C x + noise ** 2)    m += gain * error    C -= gain (C x)'    C += DRIFT * I

C says how unsure the multipliers are and how their errors hang together; through it a long read is
told from slow attention, although both come with a long history. An error counts as half of the
prediction at most, so one stalled turn moves little. Multipliers stay within LOWEST
and HIGHEST and are positive: an estimate never falls when a part grows.
"""

from collections.abc import Collection, Mapping
from math import isfinite

LOWEST, HIGHEST = 1 / 64, 64.0
NOISE = 0.2
"""Standard deviation of one observation, as a part of the prediction: medians of the same turn
scatter by some 10 %, single ones more."""
UNSURE = 0.25
"""Variance of a multiplier at the start, and the most it can have: half of the prior or half more
is likely, other values need more than one turn to be believed."""
DRIFT = 1e-4
"""What one observation adds to the variance: some hundred later it is forgotten."""
LONGEST_S = 1e6
"""Parts and durations beyond, in seconds, are none."""

Parts = Mapping[str, float]
"""Seconds that each part of a model takes by the prior."""


def bounded(value: float, lowest: float, highest: float) -> float:
    """The value, or the bound it passed; the lower one for what is not a number."""
    return min(max(lowest, value), highest) if value == value else lowest


class Ewma:
    """An average that forgets: each observation moves it by a part of the difference."""

    def __init__(self, prior: float, lowest: float, highest: float, *, pace: float = 0.1) -> None:
        self._lowest, self._highest, self._pace = lowest, highest, pace
        self.value = bounded(prior, lowest, highest)

    def observe(self, value: float, weight: float = 1.0) -> None:
        """Take in one value, of a weight from 0 to 1.

        It counts as twice or half of the average at most; what is not finite counts for nothing.
        """
        if not (isfinite(value) and isfinite(weight)):
            return
        near = bounded(value, self.value / 2, self.value * 2)
        moved = self.value + self._pace * bounded(weight, 0.0, 1.0) * (near - self.value)
        self.value = bounded(moved, self._lowest, self._highest)


class Fit:
    """A sum of parts, each with a learned multiplier.

    Multipliers of the parts in `at_most_1` have that bound as well.
    """

    def __init__(self, *names: str, at_most_1: Collection[str] = ()) -> None:
        self._names = names
        self._bounds = {name: (LOWEST, 1.0 if name in at_most_1 else HIGHEST) for name in names}
        self._multipliers = dict.fromkeys(names, 1.0)
        self._spread = [[UNSURE if a == b else 0.0 for b in names] for a in names]

    def multiplier(self, part: str) -> float:
        """What the prior of a part is multiplied with."""
        return self._multipliers[part]

    def seconds(self, parts: Parts) -> float:
        """The prediction."""
        return sum(self._multipliers[name] * part for name, part in parts.items())

    def observe(self, parts: Parts, seconds: float) -> None:
        """Learn from what the parts took together; nothing from what is no duration."""
        x = [parts.get(name, 0.0) for name in self._names]
        if not (all(0 <= part < LONGEST_S for part in x) and 0 < seconds < LONGEST_S):
            return
        predicted = self.seconds(parts)
        if predicted < 1e-9:
            return
        error = bounded(seconds - predicted, -predicted / 2, predicted / 2)
        side = [sum(c * part for c, part in zip(row, x, strict=True)) for row in self._spread]
        expected = sum(part * s for part, s in zip(x, side, strict=True))
        gain = [s / (expected + (NOISE * predicted) ** 2) for s in side]
        for index, name in enumerate(self._names):
            moved = self._multipliers[name] + gain[index] * error
            self._multipliers[name] = bounded(moved, *self._bounds[name])
            for other in range(len(x)):
                self._spread[index][other] -= gain[index] * side[other]
            self._spread[index][index] = min(self._spread[index][index] + DRIFT, UNSURE)
