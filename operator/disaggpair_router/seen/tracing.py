"""What a turn tells its trace, and the trace of a router that has none.

`otel` implements this with OpenTelemetry, which need not be installed.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol

from disaggpair_router.turnlog import TurnRecord


class TurnTrace(Protocol):
    """The trace of one turn. Names and values are words of the router's own, or counts."""

    @property
    def id(self) -> str:
        """The trace's id in hexadecimal if it is recorded; else empty."""
        ...

    def claim(self) -> AbstractContextManager[None]:
        """The span of a claim."""
        ...

    def leg(
        self, leg: str, headers: Mapping[str, str]
    ) -> AbstractContextManager[Mapping[str, str]]:
        """The span of a leg; gives the headers with the span's own context."""
        ...

    def event(self, name: str, **attributes: str) -> None:
        """Something happened now."""
        ...

    def end(self, record: TurnRecord) -> None:
        """The turn is over."""
        ...


class Tracer(Protocol):
    """Makes the traces of turns."""

    def turn(self, headers: Mapping[str, str]) -> TurnTrace:
        """A turn begins, whose client sent these headers."""
        ...

    def close(self) -> None:
        """Send what is left; takes seconds, so not to be called in the event loop."""
        ...


class NoTrace:
    """Without tracing a client's own context reaches the engines as it came."""

    id = ""

    def claim(self) -> AbstractContextManager[None]:
        """See `TurnTrace`."""
        return nullcontext()

    def leg(
        self, leg: str, headers: Mapping[str, str]
    ) -> AbstractContextManager[Mapping[str, str]]:
        """See `TurnTrace`."""
        return nullcontext(headers)

    def event(self, name: str, **attributes: str) -> None:
        """See `TurnTrace`."""

    def end(self, record: TurnRecord) -> None:
        """See `TurnTrace`."""


class NoTracer:
    """The tracer of a router without tracing."""

    def turn(self, headers: Mapping[str, str]) -> TurnTrace:
        """See `Tracer`."""
        return NO_TRACE

    def close(self) -> None:
        """See `Tracer`."""


NO_TRACE: Final = NoTrace()
