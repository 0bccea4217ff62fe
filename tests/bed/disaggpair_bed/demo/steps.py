"""Steps of a long run: each is announced, timed and kept for the report."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Steps:
    """The steps so far, name to seconds."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Announce a step, run it and note how long it took, also when it fails."""
        self.say(f"==> {name}")
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = round(time.monotonic() - start, 2)
        self.say(f"    {name}: {self.seconds[name]:.1f} s")

    def say(self, line: str) -> None:
        """Print one line at once."""
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
