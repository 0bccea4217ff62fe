"""Numbers of a benchmark as people read them."""

import os
import statistics
import sys
from collections.abc import Sequence


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that so many percent of the values are not above; NaN of none."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def median(values: Sequence[float]) -> float:
    """The median; NaN of none."""
    return statistics.median(values) if values else float("nan")


def load() -> str:
    """What else the machine does."""
    return f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
