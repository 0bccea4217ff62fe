"""D's stream on its way to the client: each piece goes out in the loop's call that brings it."""

from collections.abc import Callable

from disaggpair_router.client import Client
from disaggpair_router.errors import ClientLeft, EngineFailed, EngineRefused
from disaggpair_router.plan import Plan
from disaggpair_router.relay import StreamRelay
from disaggpair_router.seen.turns import SeenTurn
from disaggpair_router.upstream import Reply, error_in_stream


class DecodeStream:
    """One stream.

    When the client leaves after its first byte, the stream ends at once, unless the handle has
    come: past the finish chunk the rest is a few bytes, and the client may come back. Before the
    first byte D may be reading from P, and the stream goes on until that is over.

    Args:
        relay: what is changed on the way.
        reply: D's.
        client: who gets it.
        record: of the turn.
        plan: is told of every piece.
        keep: called once the end marker has come, before the client gets it.
    """

    def __init__(
        self,
        relay: StreamRelay,
        reply: Reply,
        client: Client,
        *,
        record: SeenTurn,
        plan: Plan,
        keep: Callable[[], object],
    ) -> None:
        self._relay = relay
        self._reply = reply
        self._client = client
        self._record = record
        self._plan = plan
        self._keep = keep
        self._has_begun = False
        self._failure: EngineFailed | EngineRefused | None = None

    async def run(self, first_s: float, idle_s: float) -> None:
        """Pass the stream on; `first_s` and `idle_s` are limits for its first and other pieces.

        The client may not have taken all of it. Raises EngineFailed or EngineRefused for a stream
        that breaks off or says an error, and ClientLeft.
        """
        try:
            is_more = await self._reply.each(self._first, first_s)
            while is_more and not self._is_over:
                await self._client.drained()
                is_more = await self._reply.each(self._next, idle_s)
        except EngineFailed:
            if self._client.is_gone:
                raise ClientLeft("stream") from None
            raise
        if self._failure is not None:
            raise self._failure
        if not self._relay.done:
            self._look_for_client()
            raise EngineFailed("The engine's stream ended before its end marker.")

    @property
    def _is_over(self) -> bool:
        return self._relay.done or self._failure is not None

    def _look_for_client(self) -> None:
        """ClientLeft when nobody waits for the stream and its handle has not come."""
        if self._client.is_gone and self._relay.params is None:
            self._reply.close()
            raise ClientLeft("stream" if self._has_begun else "decode")

    def _first(self, chunk: bytes) -> bool:
        self._next(chunk)
        return False

    def _next(self, chunk: bytes) -> bool:
        """D's next bytes; False when there are no more, or when the client is slow."""
        self._look_for_client()
        relay = self._relay
        self._plan.token()
        self._record.answered()
        had_handle = relay.params is not None
        try:
            out = relay.feed(chunk)
        except OverflowError:
            self._failure = EngineFailed("The engine's stream has an event without an end.")
            return False
        if relay.done:
            self._keep()
        if relay.error is not None:
            self._failure = error_in_stream(relay.error)
        is_slow = bool(out) and self._send(out)
        if relay.done or (relay.params is not None and not had_handle):
            self._client.when_gone(None)
        return not (is_slow or self._is_over)

    def _send(self, data: bytes) -> bool:
        is_last = self._relay.done and self._failure is None
        if self._has_begun:
            return self._client.send(data, last=is_last)
        self._has_begun = True
        self._record.first_byte()
        is_slow = self._client.send(data, last=is_last)
        self._record.delivered()
        if self._relay.params is None and not is_last:
            self._client.when_gone(self._reply.close)
        return is_slow
