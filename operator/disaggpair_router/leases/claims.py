"""Taking leases: which one, from whom, and what becomes of a claim that was not needed.

D decides; a claim that it refuses costs a turn one exchange with its listener.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from disaggpair_router.endpoints import Endpoints
from disaggpair_router.kv import Handle, InvalidParams, Json, checked_handle
from disaggpair_router.leases.board import Found, LeaseBoard, Owner
from disaggpair_router.leases.client import LeaseClient, ListenerError, Purpose
from disaggpair_router.leases.follow import Followers
from disaggpair_router.leases.place import Place, Wanted
from disaggpair_router.leases.release import LeaseReleases
from disaggpair_router.leases.rows import Row
from disaggpair_router.metrics import ClaimResult, Metrics
from disaggpair_router.pauses import Pauses
from disaggpair_router.pick import Endpoint, may_pair
from disaggpair_router.session import MissReason

T = TypeVar("T")

logger = logging.getLogger(__name__)

_TRIES: Final = 3
"""Leases that a turn tries: others may have the first ones before their events come here."""
_EVENT_S: Final = 0.05
"""How long a next turn waits for the event of a lease that its stream ended with."""


class LeaseClaim:
    """A lease that this turn has; see `held.Claim`."""

    def __init__(self, claims: "Claims", found: Found, handle: Handle) -> None:
        self._claims = claims
        self._found = found
        self.handle = handle

    def restore(self) -> None:
        """See `held.Claim`: the next claim of this router takes it as it is."""
        self._claims.restore(self._found, self.handle)

    def give_up(self) -> None:
        """See `held.Claim`."""
        self._claims.release(self._found)

    def pause(self, prefill: Endpoint) -> None:
        """See `held.Claim`."""
        self._claims.pauses.begin(prefill.name, self._found.owner.endpoint)


class Claims:
    """The claims of one router.

    Args:
        board: the copies of the tables.
        client: for the listeners.
        followers: know the listeners, and which of them answer.
        releases: queue for leases that are over.
        endpoints: the engines.
        pauses: engines between which nothing is read for a time.
        metrics: where claims are counted.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        board: LeaseBoard,
        *,
        client: LeaseClient,
        followers: Followers,
        releases: LeaseReleases,
        endpoints: Endpoints,
        pauses: Pauses,
        metrics: Metrics,
        clock: Callable[[], float],
    ) -> None:
        self.pauses = pauses
        self._metrics = metrics
        self._board = board
        self._client = client
        self._followers = followers
        self._releases = releases
        self._endpoints = endpoints
        self._clock = clock
        self._expected: dict[bytes, tuple[float, asyncio.Event]] = {}
        self._restored: dict[tuple[Owner, str], Handle] = {}

    async def claim(self, wanted: Wanted, prefill: Endpoint) -> LeaseClaim | MissReason:
        """Take the lease that the turn can make most of, for a read by P."""

        async def take(found: Found) -> LeaseClaim | MissReason:
            return self._hindrance(found.owner, prefill) or await self._take(found)

        return await self._first(wanted, take)

    async def claim_direct(self, wanted: Wanted) -> Json | MissReason:
        """Take it for a turn that its D computes alone."""

        async def take(found: Found) -> Json | MissReason:
            return self._absence(found.owner) or await self._ask(found, "direct")

        return await self._first(wanted, take)

    async def _first(
        self, wanted: Wanted, take: Callable[[Found], Awaitable[T | MissReason]]
    ) -> T | MissReason:
        """The first lease that can be had."""
        miss: MissReason | None = None
        for _ in range(_TRIES):
            found = self._board.find(wanted)
            if not isinstance(found, Found):
                if not await self._awaited(wanted):
                    return miss or found
                continue
            taken = await take(found)
            if not isinstance(taken, str):
                return taken
            if taken not in ("gone", "claimed"):
                return taken
            miss = taken
        return miss or "claimed"

    def expect(self, place: Place) -> None:
        """A turn has ended: the event of its lease comes any moment."""
        self._expected[place.history] = (self._clock() + _EVENT_S, asyncio.Event())

    def seen(self, row: Row) -> None:
        """A lease has come to the board: let the turn go on that waits for it."""
        if row.place is not None and self._expected:
            expected = self._expected.pop(row.place.history, None)
            if expected is not None:
                expected[1].set()

    def restore(self, found: Found, handle: Handle) -> None:
        """Keep a claim that was not used, for the turn's next attempt; else it lapses in D."""
        self._restored[found.owner, found.row.id] = handle
        self._board.mark(found, "granted")

    def release(self, found: Found) -> None:
        """Let D have a lease back, soon."""
        self._restored.pop((found.owner, found.row.id), None)
        listener = self._followers.listener(found.owner)
        if listener is not None:
            self._board.mark(found, "claimed")
            self._releases.add(listener, found.row.id)

    def expire(self) -> None:
        """Forget what nobody came for."""
        self.pauses.expire()
        now = self._clock()
        self._expected = {key: one for key, one in self._expected.items() if now < one[0]}
        self._restored.clear()

    def _absence(self, owner: Owner) -> MissReason | None:
        """Why a lease's D cannot be asked for it now."""
        decode = self._endpoints.get(owner.endpoint)
        if decode is None or decode.incarnation != owner.incarnation or not decode.ready:
            return "other_engine"
        return None if self._followers.can_claim(owner) else "unreachable"

    def _hindrance(self, owner: Owner, prefill: Endpoint) -> MissReason | None:
        """Why P cannot read from a lease's D now."""
        decode = self._endpoints.get(owner.endpoint)
        if decode is None or not may_pair(prefill, decode):
            return "other_engine"
        if self.pauses.holds(prefill.name, decode.name):
            return "paused"
        return self._absence(owner)

    async def _take(self, found: Found) -> LeaseClaim | MissReason:
        handle = self._restored.pop((found.owner, found.row.id), None)
        if handle is not None:
            self._board.mark(found, "claimed")
            return LeaseClaim(self, found, handle)
        params = await self._ask(found, "read")
        if isinstance(params, str):
            return params
        try:
            return LeaseClaim(self, found, checked_handle(params))
        except InvalidParams as error:
            logger.warning("a decode engine's handle is not usable: %s", error)
            self.release(found)
            return "no_handle"

    async def _ask(self, found: Found, purpose: Purpose) -> Json | MissReason:
        """Ask D for a lease."""
        listener = self._followers.listener(found.owner)
        if listener is None:
            return "other_engine"
        self._board.mark(found, "claimed")
        began = self._clock()
        result: ClaimResult = "unreachable"
        try:
            params = dict(await self._client.claim(listener, found.row.id, purpose))
            result = "won"
            return params
        except ListenerError as error:
            result = error.reason
            if error.reason == "gone":
                self._board.forget(found)
            return error.reason
        finally:
            self._metrics.claims.labels(purpose, result).inc()
            self._metrics.claim_seconds.observe(self._clock() - began)

    async def _awaited(self, wanted: Wanted) -> bool:
        """Whether a lease has come that a turn ended with just now."""
        for digest in wanted.earlier if self._expected else ():
            until, event = self._expected.get(digest, (0.0, None))
            if event is not None and (left := until - self._clock()) > 0:
                try:
                    async with asyncio.timeout(left):
                        await event.wait()
                except TimeoutError:
                    return False
                return True
        return False
