"""What a turn does with leases: find one, claim it, let D keep the next, give up what is over.

Implements `held` for pairs whose engines have our connector. The engines compare tokens before
they read, so what is claimed here need not be right, only likely.
"""

import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any

from disaggpair_connector.contract import PAIR_PARAMS
from disaggpair_router.answer import Answer
from disaggpair_router.conversation import Keys, label_of
from disaggpair_router.held import HeldHistory, HeldRow
from disaggpair_router.history import History
from disaggpair_router.kv import InvalidParams, Json, checked_handle
from disaggpair_router.leases.board import Found, LeaseBoard, Owner
from disaggpair_router.leases.claims import Claims, LeaseClaim
from disaggpair_router.leases.client import LeaseClient
from disaggpair_router.leases.follow import Followers
from disaggpair_router.leases.place import Place, Wanted
from disaggpair_router.leases.release import LeaseReleases
from disaggpair_router.leases.rows import Row
from disaggpair_router.pick import Endpoint
from disaggpair_router.request import TurnRequest
from disaggpair_router.session import MissReason

logger = logging.getLogger(__name__)


class LeaseTurn:
    """One turn's use of leases; see `held.TurnKV`.

    Args:
        leases: of this router.
        wanted: None when the turn can neither use nor leave a lease.
        is_told_later: D's answer says nothing of its lease, whose event comes about when it ends.
    """

    wants_whole = False
    wants_answer = False  # engines compare tokens themselves

    def __init__(self, leases: "Leases", wanted: Wanted | None, *, is_told_later: bool) -> None:
        self._leases = leases
        self._wanted = wanted
        self._is_told_later = is_told_later
        self._older = leases.older(wanted) if wanted else []
        found = leases.board.find(wanted) if wanted else None
        self._owner = found.owner if isinstance(found, Found) else None

    @property
    def holder(self) -> str:
        """See `held.TurnKV`."""
        return self._owner.endpoint if self._owner else ""

    @property
    def history(self) -> HeldHistory | None:
        """See `held.TurnKV`."""
        found = self._leases.board.find(self._wanted) if self._wanted else None
        if self._wanted is None or not isinstance(found, Found) or found.row.place is None:
            return None
        if not self._wanted.continues(found.row.place):
            return None
        return HeldHistory(found.row.tokens, found.row.place.length)

    @property
    def rank(self) -> int | None:
        """See `held.TurnKV`."""
        return self._owner.rank if self._owner and self._leases.ranks > 1 else None

    async def claim(self, prefill: Endpoint) -> LeaseClaim | MissReason:
        """See `held.TurnKV`; waits for D, a second at most."""
        if self._wanted is None:
            return "unsupported"
        return await self._leases.claims.claim(self._wanted, prefill)

    async def claim_direct(self) -> Json | MissReason:
        """See `held.TurnKV`."""
        if self._wanted is None:
            return "unsupported"
        return await self._leases.claims.claim_direct(self._wanted)

    def decode_params(self, params: Json | None, decode: Endpoint) -> Json | None:
        """See `held.TurnKV`: P's, and what D keeps with the lease."""
        if self._wanted is None:
            return params
        if params is None and decode.role == "prefill":
            return None
        ours = (params or {}).get(PAIR_PARAMS)
        named = {
            **(ours if isinstance(ours, dict) else {}),
            "conversation": self._wanted.place.text(),
        }
        return {**(params or {}), PAIR_PARAMS: named}

    def keep(
        self,
        decode: Endpoint,
        params: object,
        answer: Answer | None,
        usage: Mapping[str, object] | None,
        *,
        is_clean: bool,
    ) -> None:
        """See `held.TurnKV`: D keeps the lease; what it replaces is given up."""
        if self._wanted is None or not is_clean:
            return
        if params is not None:
            self._leases.granted(self._wanted.place, decode, params)
        elif self._is_told_later:
            self._leases.claims.expect(self._wanted.place)
        for older in self._older:
            if self._leases.board.state(older) == "granted":
                self._leases.claims.release(older)

    def discard(self, decode: Endpoint, params: object) -> None:
        """See `held.TurnKV`: the client may send its turn again, and D gives way when it must."""


class Leases:
    """The leases of the pair, as one router uses them.

    Args:
        board: the copies of the tables.
        claims: take leases.
        client: for the listeners.
        followers: keep the copies.
        releases: give leases back.
        keys: make what is stored with a lease.
        port: of the listener of an engine's first rank.
        ranks: data-parallel ranks of each engine.
        told_in_stream: whether D's streams tell of its leases.
        unix_clock: seconds since 1970.
    """

    def __init__(
        self,
        board: LeaseBoard,
        *,
        claims: Claims,
        client: LeaseClient,
        followers: Followers,
        releases: LeaseReleases,
        keys: Keys,
        port: int,
        ranks: int,
        told_in_stream: bool,
        unix_clock: Callable[[], float],
    ) -> None:
        self.board = board
        self.claims = claims
        self._client = client
        self._followers = followers
        self._releases = releases
        self.ranks = ranks
        self._keys = keys
        self._port = port
        self._told_in_stream = told_in_stream
        self._unix_clock = unix_clock

    # -- what the legs see ---------------------------------------------------------------------

    def turn(self, request: TurnRequest) -> LeaseTurn:
        """See `held.HeldKV`."""
        history = request.history
        wanted = self._wanted(request, history) if history else None
        told = request.is_told(handle_in_stream=self._told_in_stream)
        # A stop string is found outside the engine, which then gives no lease.
        is_told_later = not told and not request.has_stop
        return LeaseTurn(self, wanted, is_told_later=is_told_later)

    def expire(self) -> None:
        """See `held.HeldKV`."""
        self.claims.expire()

    @property
    def count(self) -> int:
        """See `held.HeldKV`."""
        return len(self.board)

    def rows(self) -> Iterator[HeldRow]:
        """See `held.HeldKV`."""
        now = self._unix_clock()
        for owner, row in ((found.owner, found.row) for found in self.board):
            yield HeldRow(
                conversation=label_of(row.place.id) if row.place else "",
                engine=owner.endpoint,
                rank=owner.rank,
                state=row.state,
                tokens=row.tokens,
                age_s=now - row.created,
            )

    def listeners(self) -> Mapping[tuple[str, int], bool]:
        """See `held.HeldKV`."""
        return self._followers.states()

    def pauses(self) -> Sequence[tuple[str, str, float]]:
        """See `held.HeldKV`."""
        return self.claims.pauses.active()

    async def start(self) -> None:
        """See `held.HeldKV`."""
        await self._client.start()

    def tasks(self) -> Sequence[Coroutine[Any, Any, None]]:
        """See `held.HeldKV`."""
        return [self._followers.run(), self._releases.run()]

    async def stop(self) -> None:
        """See `held.HeldKV`: the leases stay, since every other router knows them."""
        await self._client.close()

    # -- one turn ------------------------------------------------------------------------------

    def older(self, wanted: Wanted) -> list[Found]:
        """What the turn's own lease will replace."""
        return self.board.of_conversation(wanted.place) if wanted.has_id else []

    def granted(self, place: Place, decode: Endpoint, params: object) -> None:
        """A turn has ended whose lease is in D's answer."""
        try:
            handle = checked_handle(params)
        except InvalidParams as error:
            logger.warning("a decode engine's handle is not usable: %s", error)
            return
        ours = handle.pair_params
        lease, port = ours.get("lease"), ours.get("port")
        rank = port - self._port if isinstance(port, int) else -1
        if isinstance(lease, str) and 0 <= rank < self.ranks:
            row = Row(lease, place, "granted", handle.tokens, self._unix_clock())
            self.board.add(Owner(decode.name, decode.incarnation, rank), row)

    def _wanted(self, request: TurnRequest, history: History) -> Wanted:
        owner = request.conversation.owner
        scope = request.scope

        def key(digest: bytes) -> bytes:
            return self._keys.history(owner, scope, digest)

        prompt = history.prompt()
        place = Place(
            id=request.conversation.key,
            scope=self._keys.scope(scope),
            history=key(prompt.digest),
            length=prompt.length,
        )

        def continues(earlier: Place) -> bool:
            digest = history.beginning(earlier.length)
            return digest is not None and key(digest) == earlier.history

        return Wanted(place, not request.conversation.is_minted, _Keyed(history, key), continues)


class _Keyed:
    """The keys of the histories that a prompt may continue, made when they are looked at."""

    def __init__(self, history: History, key: Callable[[bytes], bytes]) -> None:
        self._history = history
        self._key = key

    def __iter__(self) -> Iterator[bytes]:
        return map(self._key, self._history.digests())
