"""Keeps the board current: one task for each engine, which lists once and then watches.

A watch that breaks off is taken up where it ended; only an engine that does not know the place any
more is listed anew. While an engine's listener is silent its leases stay on the board, for they are
probably still there, but nobody claims them: a claim would make a turn wait.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from disaggpair_router.endpoints import Endpoints
from disaggpair_router.leases.board import Gap, LeaseBoard, Owner
from disaggpair_router.leases.client import LeaseClient, ListenerError, listener_of
from disaggpair_router.leases.rows import Row

logger = logging.getLogger(__name__)

FIRST_RETRY_S: Final = 0.1
LAST_RETRY_S: Final = 5.0
_SLICE: Final = 1_000
"""Rows of a list that are taken between two looks at other work."""


class Followers:
    """The tasks that follow the engines of the pair.

    Args:
        board: what is kept current.
        client: for the listeners.
        endpoints: the engines; all decode engines among them are followed.
        port: of the first rank's listener.
        ranks: data-parallel ranks of each engine.
        seen: called with each lease that is new on the board.
        random: spreads retries.
    """

    def __init__(
        self,
        board: LeaseBoard,
        client: LeaseClient,
        *,
        endpoints: Endpoints,
        port: int,
        ranks: int,
        seen: Callable[[Row], None],
        random: Random,
    ) -> None:
        self._board = board
        self._client = client
        self._endpoints = endpoints
        self._port = port
        self._ranks = ranks
        self._seen = seen
        self._random = random
        self._tasks: dict[Owner, asyncio.Task[None]] = {}
        self._silent: set[Owner] = set()

    def can_claim(self, owner: Owner) -> bool:
        """Whether the engine's listener answers."""
        return owner in self._tasks and owner not in self._silent

    def states(self) -> dict[tuple[str, int], bool]:
        """Every listener, by engine and rank: whether it answers."""
        return {(owner.endpoint, owner.rank): self.can_claim(owner) for owner in self._tasks}

    def listener(self, owner: Owner) -> str | None:
        """Base URL of an engine's listener; None when the engine is gone."""
        endpoint = self._endpoints.get(owner.endpoint)
        if endpoint is None or endpoint.incarnation != owner.incarnation:
            return None
        return listener_of(endpoint.url, self._port + owner.rank)

    async def run(self) -> None:
        """Follow for ever; cancel to stop."""
        changed = asyncio.Event()
        self._endpoints.on_change(changed.set)
        try:
            while True:
                changed.clear()
                self._adjust(self._wanted())
                await changed.wait()
        finally:
            self._adjust({})

    def _wanted(self) -> Mapping[Owner, str]:
        return {
            Owner(endpoint.name, endpoint.incarnation, rank): listener_of(
                endpoint.url, self._port + rank
            )
            for endpoint in self._endpoints
            if endpoint.role == "decode"
            for rank in range(self._ranks)
        }

    def _adjust(self, wanted: Mapping[Owner, str]) -> None:
        for owner in self._tasks.keys() - wanted.keys():
            self._tasks.pop(owner).cancel()
            self._silent.discard(owner)
            self._board.drop(owner)
        for owner in wanted.keys() - self._tasks.keys():
            self._silent.add(owner)
            self._tasks[owner] = asyncio.create_task(self._follow(owner, wanted[owner]))

    async def _follow(self, owner: Owner, listener: str) -> None:
        delay_s = FIRST_RETRY_S
        while True:
            try:
                if self._board.since(owner) is None:
                    await self._list(owner, listener)
                await self._watch(owner, listener)
                delay_s = FIRST_RETRY_S
            except Gap:
                self._board.drop(owner)
            except ListenerError as error:
                if error.reason == "gone":
                    # Another life of the engine, or a place that its log has left behind.
                    self._board.drop(owner)
                    continue
                self._fall_silent(owner, listener, error)
                await asyncio.sleep(delay_s * self._random.uniform(0.5, 1.0))
                delay_s = min(2 * delay_s, LAST_RETRY_S)

    async def _list(self, owner: Owner, listener: str) -> None:
        listing = await self._client.listing(listener)
        self._board.replace(owner, listing.epoch, listing.sequence)
        for number, row in enumerate(listing.rows, 1):
            self._board.add(owner, row)
            self._seen(row)
            if number % _SLICE == 0:
                await asyncio.sleep(0)
        self._answers(owner, listener)

    async def _watch(self, owner: Owner, listener: str) -> None:
        since = self._board.since(owner)
        if since is None:
            raise Gap
        async with contextlib.aclosing(self._client.watch(listener, *since)) as events:
            async for event in events:
                self._answers(owner, listener)
                self._board.apply(owner, event)
                if event.type == "granted" and event.row is not None:
                    self._seen(event.row)

    def _answers(self, owner: Owner, listener: str) -> None:
        if owner in self._silent:
            self._silent.discard(owner)
            logger.info("leases at %s are followed", listener)

    def _fall_silent(self, owner: Owner, listener: str, error: ListenerError) -> None:
        if owner not in self._silent:
            self._silent.add(owner)
            logger.warning("leases at %s cannot be followed: %s", listener, error)
        elif self._board.since(owner) is None:
            logger.debug("leases at %s are not known yet: %s", listener, error)
