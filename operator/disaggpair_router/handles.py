"""Everything a turn does with handles: claim one, keep the new one, give up one nobody can use.

The table itself is `session`; this adds the clock, the engines' state and the release queue.
"""

import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Final

from disaggpair_router.answer import Answer
from disaggpair_router.config import KVTransfer
from disaggpair_router.conversation import label_of
from disaggpair_router.endpoints import Endpoints
from disaggpair_router.held import HeldRow
from disaggpair_router.history import Mark
from disaggpair_router.kv import Handle, InvalidParams, checked_handle
from disaggpair_router.pauses import Pauses
from disaggpair_router.pick import Endpoint, may_pair
from disaggpair_router.release import Releases
from disaggpair_router.request import TurnRequest
from disaggpair_router.session import (
    Claim,
    Conversations,
    Entry,
    Holder,
    MissReason,
    unverifiable,
)
from disaggpair_router.usage import usage_of

logger = logging.getLogger(__name__)

_FLUSH_S: Final = 3.0
"""For releasing handles at the end; D keeps the rest until its own time limit."""


class Handles:
    """The handles of one router process."""

    def __init__(
        self,
        table: Conversations,
        *,
        config: KVTransfer,
        endpoints: Endpoints,
        releases: Releases,
        clock: Callable[[], float],
    ) -> None:
        self._table = table
        self._config = config
        self._endpoints = endpoints
        self._releases = releases
        self._clock = clock
        self._pauses = Pauses(config.pull_pause_s, clock)

    def wants_whole(self, request: TurnRequest) -> bool:
        """Whether D has to be asked without streaming, because only then it gives its handle.

        It pins the blocks in either case; of a stream nobody would learn where they are.
        """
        told = request.is_told(handle_in_stream=self._config.handle_in_stream)
        return self._config.bidirectional and not told

    def holder(self, request: TurnRequest) -> str:
        """Name of the decode engine that has the conversation; empty when there is none."""
        holder = self._table.holder(self._key(request))
        return holder.endpoint if holder and self._present(holder) else ""

    def claim(self, request: TurnRequest, prefill: Endpoint) -> Claim | MissReason:
        """Take the handle for a P leg that is sent right after, in the same step of the loop."""
        if not self._config.bidirectional:
            return "off"
        if request.history is None:
            return "unsupported"
        key = self._key(request)
        holder = self._table.holder(key)
        if holder is not None:
            decode = self._present(holder)
            if decode is None or not decode.ready or not may_pair(prefill, decode):
                return "other_engine"
            if self._pauses.holds(prefill.name, decode.name):
                return "paused"
        found = self._table.claim(key, request.scope, request.history, self._clock())
        if isinstance(found, Claim):
            return found
        if found.unusable is not None:
            self._releases.add(found.unusable)
        return found.reason

    def restore(self, claim: Claim) -> None:
        """Put back the handle of a P leg that never reached its engine."""
        for entry in self._table.restore(claim):
            self._releases.add(entry)

    def give_up(self, claim: Claim) -> None:
        """Release the handle of a P leg that P refused before it looked at the handle."""
        self._releases.add(claim.entry)

    def pause(self, claim: Claim, prefill: Endpoint) -> None:
        """Send no handles between two engines for a time."""
        self._pauses.begin(prefill.name, claim.entry.holder.endpoint)

    def keep(
        self,
        request: TurnRequest,
        decode: Endpoint,
        params: object,
        answer: Answer | None,
        usage: Mapping[str, object] | None,
    ) -> None:
        """Remember the turn that D just finished.

        To be called before the client learns of the end: its next turn may come right after.
        """
        if not self._config.bidirectional:
            return
        handle = _accepted(params)
        history = request.history
        mark = history.mark_after(answer) if history and answer else None
        entry = self._entry(request, decode, handle, mark)
        reason = self._unusable(request, handle, answer, usage)
        if reason is not None:
            self._discard(entry)
            entry = entry.without_handle(reason)
        for gone in self._table.store(entry):
            self._releases.add(gone)

    def discard(self, request: TurnRequest, decode: Endpoint, params: object) -> None:
        """Release the handle of a turn whose answer nobody received."""
        self._discard(self._entry(request, decode, _accepted(params), None))

    def expire(self) -> None:
        """Drop what is over; called now and then."""
        self._table.expire(self._clock())
        self._pauses.expire()

    @property
    def count(self) -> int:
        """See `held.HeldKV`."""
        return self._table.handles

    def rows(self) -> Iterator[HeldRow]:
        """See `held.HeldKV`."""
        now = self._clock()
        for entry in self._table:
            if entry.handle is not None:
                yield HeldRow(
                    conversation=label_of(entry.key),
                    engine=entry.holder.endpoint,
                    rank=0,
                    state="granted",
                    tokens=entry.handle.tokens,
                    age_s=now - (entry.deadline - self._config.handle_ttl_s),
                )

    def listeners(self) -> Mapping[tuple[str, int], bool]:
        """See `held.HeldKV`: there are none."""
        return {}

    def pauses(self) -> Sequence[tuple[str, str, float]]:
        """See `held.HeldKV`."""
        return self._pauses.active()

    async def start(self) -> None:
        """See `held.HeldKV`."""

    def tasks(self) -> Sequence[Coroutine[Any, Any, None]]:
        """See `held.HeldKV`."""
        return [self._releases.run()]

    async def stop(self) -> None:
        """Release every handle: this router ends and nobody else knows them."""
        for entry in self._table:
            self._discard(entry)
        await self._releases.flush(_FLUSH_S)

    def _key(self, request: TurnRequest) -> bytes:
        conversation = request.conversation
        if not conversation.is_minted or request.history is None:
            return conversation.key
        found = self._table.continued_by(conversation.owner, request.history.digests())
        return found or conversation.key

    def _entry(
        self, request: TurnRequest, decode: Endpoint, handle: Handle | None, mark: Mark | None
    ) -> Entry:
        return Entry(
            key=request.conversation.key,
            owner=request.conversation.owner,
            scope=request.scope,
            mark=mark,
            handle=handle,
            holder=Holder(decode.name, decode.incarnation),
            model=request.model,
            deadline=self._clock() + self._config.handle_ttl_s,
            headers={
                name: value
                for name, value in request.headers.items()
                if name.lower() == "authorization"
            },
        )

    def _unusable(
        self,
        request: TurnRequest,
        handle: Handle | None,
        answer: Answer | None,
        usage: Mapping[str, object] | None,
    ) -> MissReason | None:
        """Why the next turn must not use the handle of this one."""
        if handle is None:
            return "no_handle"
        if request.history is None or answer is None:
            return "unsupported"
        if handle.tokens > usage_of(usage).total(default=handle.tokens):
            # Draft tokens in flight: the blocks would be read at shifted positions.
            logger.warning("a decode engine's handle counts more tokens than the turn had")
            return "no_handle"
        if self._config.verified_reads:
            return None
        return unverifiable(request.api, answer)

    def _discard(self, entry: Entry) -> None:
        if entry.handle is not None:
            self._releases.add(entry)

    def _present(self, holder: Holder) -> Endpoint | None:
        endpoint = self._endpoints.get(holder.endpoint)
        return endpoint if endpoint and endpoint.incarnation == holder.incarnation else None


def _accepted(params: object) -> Handle | None:
    if params is None:
        return None
    try:
        return checked_handle(params)
    except InvalidParams as error:
        logger.warning("a decode engine's handle is not usable: %s", error)
        return None
