"""Faults that a test switches on: what an engine does wrong, how often.

A fault acts on the next `count` generation requests that reach it (all of them when `count` is
None); `unhealthy` acts on `/health`.
"""

from dataclasses import dataclass
from typing import Any, Final

KINDS: Final = {
    "status": "answer with `status` (and `retry_after`) at once",
    "hang": "never answer; the request does not reach the core",
    "reset": "close the connection at once",
    "drop_after_read": "run the request to its end, then close the connection",
    "null_params": "return no transfer parameters, although the blocks are pinned",
    "stream_error": "an error event after `after` chunks, then [DONE]",
    "cut_stream": "close the connection after `after` chunks",
    "slow_first_byte": "wait `delay_s` before the first byte",
    "split_chunks": "write the body in pieces of `size` bytes",
    "unhealthy": "answer 503 on /health",
}


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

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise FaultError(f"kind is {self.kind!r}, must be one of {', '.join(KINDS)}")
        if self.count is not None and self.count < 1:
            raise FaultError(f"count is {self.count}, must be at least 1, or null for all requests")
        if self.size < 1:
            raise FaultError(f"size is {self.size}, must be at least 1")


class Faults:
    """The faults of one engine."""

    def __init__(self) -> None:
        self._active: list[Fault] = []

    def add(self, kind: str, **settings: Any) -> None:
        """Switch a fault on.

        Raises:
            FaultError: no such kind or setting.
        """
        try:
            fault = Fault(kind, **settings)
        except TypeError as error:
            raise FaultError(str(error)) from None
        self._active.append(fault)

    def clear(self) -> None:
        """Switch all faults off; requests that hang already go on hanging."""
        self._active.clear()

    def take(self, kind: str) -> Fault | None:
        """The fault of a kind that acts now, used up by one."""
        for fault in self._active:
            if fault.kind == kind:
                if fault.count is not None:
                    fault.count -= 1
                    if fault.count == 0:
                        self._active.remove(fault)
                return fault
        return None

    def active(self) -> list[dict[str, Any]]:
        """The faults that are switched on, as JSON values."""
        return [vars(fault).copy() for fault in self._active]
