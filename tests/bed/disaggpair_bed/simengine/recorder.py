"""What clients sent to the generation routes, for tests of what a router sends."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

KEPT = 1000


@dataclass(frozen=True)
class Received:
    """One request as it arrived."""

    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    raw: bytes

    @property
    def body(self) -> Any:
        """The body as JSON values; None when it is no JSON."""
        try:
            return orjson.loads(self.raw)
        except orjson.JSONDecodeError:
            return None


class Recorder:
    """The last requests, oldest first; keeps none while it is not enabled."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self.received: deque[Received] = deque(maxlen=KEPT)

    def add(self, path: str, headers: Mapping[str, str], raw: bytes) -> None:
        """Keep one request."""
        if self._enabled:
            lower = {name.lower(): value for name, value in headers.items()}
            self.received.append(Received(path, lower, raw))

    def report(self) -> list[dict[str, Any]]:
        """The requests as JSON values."""
        return [
            {"path": one.path, "headers": dict(one.headers), "body": one.body}
            for one in self.received
        ]
