"""What a client sent, and what it is answered. Pure: no sockets, no clock."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final, Literal, Protocol

from multidict import CIMultiDict

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"

Fault = Literal["malformed", "head_too_large", "body_too_large", "late", "overloaded", "failed"]
"""Why a request is answered without its work; `late`: its rest did not come in time, `overloaded`:
the bodies of all requests are too many bytes, `failed`: the work ended as nobody expected."""

_REASONS: Final = {status.value: status.phrase for status in HTTPStatus}


@dataclass(slots=True)
class Head:
    """A request without its body."""

    method: str
    path: str
    """As it was sent, without the query, and without scheme and host if they stood before it."""
    query: str
    headers: CIMultiDict[str]
    peer: str
    """Address of whoever has opened the connection; empty if that is not known."""

    @property
    def length(self) -> int:
        """Bytes that the body is said to have; 0 if it is sent in chunks or there is none."""
        given = self.headers.get("Content-Length", "")
        return int(given) if given.isascii() and given.isdigit() else 0

    @property
    def is_chunked(self) -> bool:
        """Whether the body's length is not known before its end."""
        return "Transfer-Encoding" in self.headers

    @property
    def awaits_word(self) -> bool:
        """Whether the client keeps its body until it is told to go on."""
        return self.headers.get("Expect", "").lower() == "100-continue"


@dataclass(slots=True)
class Answer:
    """A whole answer."""

    status: int = 200
    body: bytes = b""
    kind: str = JSON
    """Its Content-Type."""
    headers: Mapping[str, str] = field(default_factory=dict)


class Responder(Protocol):
    """Where the answer to one request goes."""

    @property
    def is_gone(self) -> bool:
        """Nobody waits for the answer any more; what is sent is dropped."""
        ...

    @property
    def has_begun(self) -> bool:
        """Whether a stream's status was sent."""
        ...

    def when_gone(self, call: Callable[[], object]) -> None:
        """What is called when the client leaves, in place of ending the work."""
        ...

    def stream(self, headers: Mapping[str, str]) -> None:
        """The answer is a stream with these headers, which go out with its first bytes."""
        ...

    def send(self, data: bytes, *, last: bool = False) -> bool:
        """Send bytes of the stream; with `last` its end in the same piece, and nothing after it.

        Whether the client is slow, so that `drained` should be awaited before the next.
        """
        ...

    async def drained(self) -> None:
        """Wait until the client has read enough, or is gone."""
        ...


Work = Callable[[bytes, Responder], Awaitable[Answer | None]]
"""Makes the answer to a request from its body; None when it has been streamed."""


class Application(Protocol):
    """What a server serves."""

    @property
    def max_body_bytes(self) -> int:
        """Bound of a request's body."""
        ...

    def begin(self, head: Head) -> Work | Answer:
        """What to do about a request, before its body is read. Must not raise."""
        ...

    def fault(self, fault: Fault, head: Head | None) -> Answer:
        """The answer to a request that cannot be served; `head` if it was understood."""
        ...


def rendered(
    status: int, headers: Mapping[str, str], *, kind: str, length: int | None, date: str, keep: bool
) -> bytes:
    """Status line and headers.

    Args:
        status: of the answer.
        headers: besides those that follow from the other arguments.
        kind: Content-Type.
        length: of the body; None for one in chunks, negative for one that ends with the connection.
        date: the time as headers have it.
        keep: whether another request may follow.

    Raises ValueError for a header that would end its line.
    """
    lines = [
        f"HTTP/1.1 {status} {_REASONS.get(status, '')}\r\nContent-Type: {kind}\r\nDate: {date}\r\n"
    ]
    if length is None:
        lines.append("Transfer-Encoding: chunked\r\n")
    elif length >= 0:
        lines.append(f"Content-Length: {length}\r\n")
    if not keep:
        lines.append("Connection: close\r\n")
    expected = len(lines) + 2
    for name, value in headers.items():
        lines.append(f"{name}: {value}\r\n")
        expected += 1
    text = "".join(lines)
    if text.count("\n") != expected or text.count("\r") != expected:
        raise ValueError("a header of an answer has a line break in it")
    return f"{text}\r\n".encode("latin-1")
