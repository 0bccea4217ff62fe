"""The generation routes: how a body is read and what an answer looks like."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from disaggpair_bed.simengine import apirequest, messagesrequest, responsesrequest
from disaggpair_bed.simengine.apierrors import ApiError, as_anthropic
from disaggpair_bed.simengine.apireply import Choice, Reply
from disaggpair_bed.simengine.apirequest import Call
from disaggpair_bed.simengine.messagesreply import MessagesReply
from disaggpair_bed.simengine.options import EngineOptions
from disaggpair_bed.simengine.responsesreply import ResponsesReply
from disaggpair_bed.simengine.sequence import Delta


class Replying(Protocol):
    """The shapes of one answer."""

    def opening(self, choice: Choice) -> bytes:
        """What a stream begins with for one choice."""
        ...

    def chunk(self, choice: Choice, delta: Delta) -> bytes:
        """What a delta adds; empty for nothing."""
        ...

    def ending(self, choices: Sequence[Choice]) -> bytes:
        """What comes after the last delta."""
        ...

    def broken(self, error: ApiError) -> bytes | None:
        """How a stream ends that fails; None when its connection breaks."""
        ...

    def whole(self, choices: Sequence[Choice], params: dict[str, Any] | None) -> dict[str, Any]:
        """An answer that is not streamed."""
        ...


def _same(error: ApiError) -> ApiError:
    return error


@dataclass(frozen=True)
class Api:
    """One generation route."""

    path: str
    prefix: str
    """What an answer's id begins with."""
    read: Callable[[object, EngineOptions], Call]
    """Raises ApiError."""
    reply: Callable[[Call, str, EngineOptions], Replying]
    takes_header: bool = True
    """Whether X-Request-Id becomes part of the id."""
    translate: Callable[[ApiError], ApiError] = _same
    """An error of the engine as this API has it."""


def _chat(body: object, options: EngineOptions) -> Call:
    return apirequest.parse(body, chat=True, options=options)


def _completions(body: object, options: EngineOptions) -> Call:
    return apirequest.parse(body, chat=False, options=options)


def _translated(
    as_chat: Callable[[object], Mapping[str, Any]],
) -> Callable[[object, EngineOptions], Call]:
    """Reads a body by way of the chat that it means."""

    def read(body: object, options: EngineOptions) -> Call:
        return apirequest.parse(as_chat(body), chat=True, options=options)

    return read


APIS: Final = (
    Api("/v1/chat/completions", "chatcmpl", _chat, Reply),
    Api("/v1/completions", "cmpl", _completions, Reply),
    Api(
        "/v1/responses",
        "resp",
        _translated(responsesrequest.as_chat),
        ResponsesReply,
        takes_header=False,
    ),
    Api(
        "/v1/messages",
        "chatcmpl",
        _translated(messagesrequest.as_chat),
        MessagesReply,
        translate=as_anthropic,
    ),
)
