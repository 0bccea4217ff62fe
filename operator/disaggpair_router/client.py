"""The client's side of a turn, as the legs see it. `app` implements it over HTTP."""

from typing import Protocol


class Client(Protocol):
    """One waiting client."""

    @property
    def is_gone(self) -> bool:
        """The connection is closed; what is written is dropped."""
        ...

    @property
    def has_begun(self) -> bool:
        """Status and headers were sent, so the status can no longer change."""
        ...

    def send(self, data: bytes, *, last: bool = False) -> bool:
        """Send bytes of a stream, headers first. Whether the client is slow: see `drained`.

        After the `last` nothing is sent.
        """
        ...

    async def drained(self) -> None:
        """Wait for a client that is slow to read."""
        ...

    def when_gone(self, cut: "Cut | None") -> None:
        """Set what is called as soon as the client leaves; at once if it has left."""
        ...


class Cut(Protocol):
    """Ends a leg that nobody waits for."""

    def __call__(self) -> None:
        """Must not raise."""
        ...
