"""Faults that a test switches on: what an engine does wrong, how often.

A fault acts on the next `count` requests that it is about (all of them when `count` is None):
generation requests, unless its kind names `/health`, reads of a peer's blocks, or the lease
listener. With a `probability` below 1 it acts on some of them, the same ones for the same `seed`.
"""

import asyncio
import threading
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

KINDS: Final = {
    "status": "answer with `status` (and `retry_after`) at once",
    "hang": "never answer; the request does not reach the core",
    "reset": "close the connection at once",
    "crash": "the core dies as the request arrives",
    "delay": "wait `delay_s` before the request reaches the core",
    "drop_after_read": "run the request to its end, then close the connection",
    "null_params": "return no transfer parameters, although the blocks are pinned",
    "malformed_body": "an answer, or after `after` chunks a chunk, that is no JSON",
    "empty_body": "status 200 and nothing else",
    "finish_error": "the answer ends with the finish reason `error`, under status 200",
    "stream_error": "an error event after `after` chunks, then [DONE]",
    "cut_stream": "close the connection after `after` chunks",
    "crash_stream": "the core dies after `after` chunks",
    "truncate_stream": "end the body well after `after` chunks",
    "omit_end": "leave out what comes after the chunk with the finish reason",
    "slow_first_byte": "wait `delay_s` before the first byte",
    "slow_stream": "wait `delay_s` before each chunk",
    "split_chunks": "write the body in pieces of `size` bytes",
    "crlf": "end the lines of a stream with carriage return and line feed",
    "comments": "write a comment before each event of a stream",
    "multiline": "spread the data of each event over two lines",
    "unhealthy": "answer 503 on /health",
    "hang_read": "a read of a peer's blocks does not end until the faults are cleared",
    "slow_read": "a read of a peer's blocks takes `delay_s` longer",
    "fail_read": "a read of a peer's blocks fails",
    "corrupt_read": "a read of a peer's blocks brings other values, and nobody notices",
    "lease_status": "the lease listener answers with `status`",
    "lease_gone": "the lease listener answers 410",
    "lease_garbage": "the lease listener answers with what is no HTTP",
    "lease_malformed": "the lease listener answers 200 with what is no JSON",
    "lease_drop": "the lease listener closes the connection without an answer",
    "lease_silent": "the lease listener does not answer until the faults are cleared",
    "lease_slow": "the lease listener answers `delay_s` later",
}

ROUTES: Final = ("list", "watch", "claim", "release", "read", "finish", "give_back")
"""What the lease listener is asked for; `release` is a router's, `give_back` a reader's."""


class FaultError(ValueError):
    """A fault that does not exist; the text is for the caller."""


@dataclass
class Fault:
    """One fault that is switched on."""

    kind: str
    count: int | None = 1
    """Requests that it still acts on; None for all."""
    status: int = 500
    retry_after: int | None = None
    after: int = 0
    delay_s: float = 0.0
    size: int = 1
    route: str = ""
    """The only route of the lease listener that it acts on; empty for all."""
    probability: float = 1.0
    """Share of the requests that it acts on."""
    seed: int = 0
    _rng: Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._rng = Random(self.seed)
        if self.kind not in KINDS:
            raise FaultError(f"kind is {self.kind!r}, must be one of {', '.join(KINDS)}")
        if self.count is not None and self.count < 1:
            raise FaultError(f"count is {self.count}, must be at least 1, or null for all requests")
        if self.size < 1:
            raise FaultError(f"size is {self.size}, must be at least 1")
        if self.route not in ("", *ROUTES):
            raise FaultError(f"route is {self.route!r}, must be one of {', '.join(ROUTES)}")
        if not 0 < self.probability <= 1:
            raise FaultError(f"probability is {self.probability}, must be above 0, at most 1")

    def acts(self, kind: str, route: str) -> bool:
        """Whether it acts on a request, which uses up one of its random numbers."""
        if self.kind != kind or self.route not in ("", route):
            return False
        return self.probability == 1 or self._rng.random() < self.probability

    def shown(self) -> dict[str, Any]:
        """Its settings as JSON values."""
        return {key: value for key, value in vars(self).items() if not key.startswith("_")}


class Faults:
    """The faults of one engine; `take` may be called by any thread."""

    def __init__(self) -> None:
        self._active: list[Fault] = []
        self._lock = threading.Lock()
        self._running = asyncio.Event()
        self._running.set()
        self._cleared = asyncio.Event()
        self.running = threading.Event()
        """Not set while the engine is frozen, for threads."""
        self.running.set()
        self.cleared = threading.Event()
        """Set by `clear`, for threads."""

    def add(self, kind: str, **settings: Any) -> None:
        """Switch a fault on.

        Raises:
            FaultError: no such kind or setting.
        """
        try:
            fault = Fault(kind, **settings)
        except TypeError as error:
            raise FaultError(str(error)) from None
        with self._lock:
            self._active.append(fault)
        self._cleared.clear()
        self.cleared.clear()

    def clear(self) -> None:
        """Switch all faults off; generation requests that hang already go on hanging."""
        with self._lock:
            self._active.clear()
        self._cleared.set()
        self.cleared.set()

    def take(self, kind: str, route: str = "") -> Fault | None:
        """The fault of a kind that acts now, used up by one."""
        with self._lock:
            for fault in self._active:
                if not fault.acts(kind, route):
                    continue
                if fault.count is not None:
                    fault.count -= 1
                    if fault.count == 0:
                        self._active.remove(fault)
                return fault
        return None

    def active(self) -> list[dict[str, Any]]:
        """The faults that are switched on, as JSON values."""
        with self._lock:
            return [fault.shown() for fault in self._active]

    async def until_cleared(self) -> None:
        """Wait for `clear`."""
        await self._cleared.wait()

    # As SIGSTOP and SIGCONT do it to a process: the kernel takes connections, and that is all.

    def freeze(self) -> None:
        """Let nothing move any more."""
        self._running.clear()
        self.running.clear()

    def thaw(self) -> None:
        """Let everything go on."""
        self._running.set()
        self.running.set()

    @property
    def is_frozen(self) -> bool:
        """Whether nothing moves."""
        return not self._running.is_set()

    async def thawed(self) -> None:
        """Wait while nothing moves."""
        await self._running.wait()
