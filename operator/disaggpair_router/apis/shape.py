"""What a turn has to know of an API. Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from disaggpair_router.answer import Answer
from disaggpair_router.history import History
from disaggpair_router.kv import Json


@dataclass(frozen=True, slots=True)
class Ending:
    """How a whole answer ended."""

    answer: Answer
    is_clean: bool
    """Whether it ended as a finished answer does; D gives a handle after no other."""
    has_failed: bool = False
    """The engine failed under status 200."""


@dataclass(slots=True)
class Learned:
    """What the events of a stream have said so far."""

    params: object = None
    """D's transfer parameters, not checked yet."""
    usage: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None
    """The engine's error event, with a status as `code` where it tells."""
    finish_reason: str | None = None
    done: bool = False
    """The end marker came."""


class StreamShape(Protocol):
    """How an API streams."""

    @property
    def endings(self) -> frozenset[str]:
        """Finish reasons of an answer that is complete."""
        ...

    @property
    def matters(self) -> "re.Pattern[bytes]":
        """Matches the data of every event that `learn` has to see."""
        ...

    @property
    def has_params_in_chunks(self) -> bool:
        """Whether nearly every event has the parameters with null."""
        ...

    def params_place(self, chunk: Json) -> Json | None:
        """The object of an event in which the parameters are members."""
        ...

    def learn(self, chunk: Mapping[str, Any], learned: Learned) -> None:
        """Take what an event says of the end."""
        ...

    def has_answer(self, data: bytes) -> bool:
        """Whether the answer cannot be put together without an event."""
        ...

    def answer(self, chunks: Iterable[Mapping[str, Any]]) -> Answer:
        """The answer that these events add up to."""
        ...


class Shape(Protocol):
    """One API."""

    @property
    def path(self) -> str:
        """Path of the route, the same at the engines."""
        ...

    @property
    def stream(self) -> StreamShape:
        """How it streams."""
        ...

    @property
    def tells_in_stream(self) -> bool | None:
        """Whether D's handle is in a stream; None when that depends on the engines' release."""
        ...

    @property
    def not_in_scope(self) -> frozenset[str]:
        """Fields besides `history.NOT_IN_SCOPE` that do not shape the prompt."""
        ...

    def edited(self, body: Json) -> Json:
        """The body as the engines may see it; BadRequest when a field cannot be served."""
        ...

    def must_run_alone(self, body: Mapping[str, Any]) -> bool:
        """Whether the transfer cannot serve this request, for a reason of this API's."""
        ...

    def is_comparable(self, body: Mapping[str, Any]) -> bool:
        """Whether equal histories can mean equal tokens, see `request.is_comparable`."""
        ...

    def history(self, body: Mapping[str, Any], *, verified: bool) -> History | None:
        """The prompt for comparison with others; None when there is none.

        `verified` says that the engines compare tokens and media themselves, so that the history
        only has to be likely.
        """
        ...

    def ending(self, body: Mapping[str, Any]) -> Ending:
        """How a whole answer ended."""
        ...

    def error_body(self, error: Exception, request_id: str) -> bytes:
        """An error as a body."""
        ...

    def error_event(self, error: Exception, request_id: str, sent: bytes) -> bytes:
        """An error as the last event of a stream; `sent` are bytes that end it so far."""
        ...
