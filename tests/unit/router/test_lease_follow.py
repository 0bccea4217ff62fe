"""The board follows real lease listeners: their leases, their ends and their new lives."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from disaggpair_bed.fakes.listening import KEY, Listening, lease_client, listening
from disaggpair_bed.fakes.rawhttp import grant
from disaggpair_bed.routing import eventually
from disaggpair_connector.errors import ConfigError
from disaggpair_router.endpoints import Endpoints
from disaggpair_router.leases.board import LeaseBoard, Owner
from disaggpair_router.leases.client import LeaseClient
from disaggpair_router.leases.follow import Followers
from disaggpair_router.leases.rows import Row
from disaggpair_router.metrics import Metrics
from disaggpair_router.pick import Endpoint

D = Endpoint("d", "http://127.0.0.1:8000", "decode", ready=True, incarnation="1")
OWNER = Owner("d", "1")


class Bench:
    """Followers of the engines in `endpoints`, which the test changes."""

    def __init__(self, client: LeaseClient, port: int, ranks: int = 1) -> None:
        self.board = LeaseBoard()
        self.new: list[str] = []
        self.endpoints = Endpoints(revision="", single_engine=True, metrics=Metrics(), clock=float)
        self.followers = Followers(
            self.board,
            client,
            endpoints=self.endpoints,
            port=port,
            ranks=ranks,
            seen=self.see,
            random=Random(1),
        )

    def see(self, row: Row) -> None:
        self.new.append(row.id)

    @property
    def leases(self) -> list[tuple[Any, str]]:
        """Owner and lease of each."""
        return sorted((one.owner.rank, one.row.id) for one in self.board)


@contextmanager
def neighbours() -> Iterator[tuple[Listening, Listening]]:
    """Two listeners at ports one after the other."""
    for _ in range(50):
        with ExitStack() as stack:
            first = stack.enter_context(listening())
            try:
                second = stack.enter_context(listening(port=first.port + 1))
            except ConfigError:  # somebody else has it
                continue
            yield first, second
            return
    raise AssertionError("no two free ports were found")


@asynccontextmanager
async def following(port: int, *endpoints: Endpoint, ranks: int = 1) -> AsyncIterator[Bench]:
    async with lease_client() as client:
        bench = Bench(client, port, ranks)
        bench.endpoints.replace_all(endpoints)
        task = asyncio.create_task(bench.followers.run())
        yield bench
        task.cancel()
        await asyncio.wait([task])
        await eventually(lambda: len(asyncio.all_tasks()) == 1)


async def test_leases_are_copied_as_they_come_and_go() -> None:
    with listening() as engine:
        grant(engine.book, "before")
        async with following(engine.port, D) as bench:
            await eventually(lambda: bench.leases == [(0, "before")])
            grant(engine.book, "after")
            await eventually(lambda: bench.leases == [(0, "after"), (0, "before")])
            engine.book.claim("before", "read")
            await eventually(lambda: bench.board.granted == 1)
            engine.book.release("before")
            await eventually(lambda: bench.leases == [(0, "after")])
            assert bench.new == ["before", "after"]
            assert bench.followers.can_claim(OWNER)
            assert bench.followers.listener(OWNER) == engine.url


async def test_a_new_life_of_an_engine_is_another_owner() -> None:
    with listening() as engine:
        grant(engine.book, "a")
        async with following(engine.port, D) as bench:
            await eventually(lambda: bench.leases == [(0, "a")])
            bench.endpoints.put(replace(D, incarnation="2"))
            await eventually(lambda: {one.owner for one in bench.board} == {Owner("d", "2")})
            assert not bench.followers.can_claim(OWNER)
            assert bench.followers.listener(OWNER) is None


async def test_another_epoch_at_the_same_place_is_listed_anew() -> None:
    with listening("first") as engine:
        grant(engine.book, "old")
        port = engine.port
        async with lease_client() as client:
            bench = Bench(client, port)
            bench.endpoints.put(D)
            task = asyncio.create_task(bench.followers.run())
            await eventually(lambda: bench.leases == [(0, "old")])
            engine.book.close()
            # The port is free once the listener has stopped.
            await asyncio.to_thread(engine.stop)
            await eventually(lambda: not bench.followers.can_claim(OWNER))
            assert bench.leases == [(0, "old")]
            with listening("second", port=port) as again:
                grant(again.book, "new")
                await eventually(lambda: bench.leases == [(0, "new")])
                await eventually(lambda: bench.followers.can_claim(OWNER))
            task.cancel()
            await asyncio.wait([task])


async def test_an_engine_that_goes_takes_its_leases_along() -> None:
    with listening() as engine:
        grant(engine.book, "a")
        async with following(engine.port, D) as bench:
            await eventually(lambda: bench.leases == [(0, "a")])
            bench.endpoints.remove("d")
            await eventually(lambda: bench.leases == [])
            assert not bench.followers.can_claim(OWNER)
            bench.endpoints.put(D)
            await eventually(lambda: bench.leases == [(0, "a")])


async def test_each_rank_is_followed_at_its_own_port() -> None:
    with neighbours() as (first, second):
        grant(first.book, "a")
        grant(second.book, "b")
        async with following(first.port, D, ranks=2) as bench:
            await eventually(lambda: bench.leases == [(0, "a"), (1, "b")])
            assert bench.followers.listener(Owner("d", "1", 1)) == second.url


async def test_prefill_engines_are_not_followed() -> None:
    with listening() as engine:
        grant(engine.book, "a")
        p = replace(D, name="p", role="prefill")
        d = replace(D, name="d")
        async with following(engine.port, p, d) as bench:
            await eventually(lambda: bench.leases == [(0, "a")])
            assert {one.owner for one in bench.board} == {OWNER}


async def test_a_missing_event_is_made_up_for_by_a_new_list() -> None:
    with listening() as engine:
        grant(engine.book, "a")
        async with following(engine.port, D) as bench:
            await eventually(lambda: bench.leases == [(0, "a")])
            # As if an event had been lost on the way: the board believes that it knows more.
            bench.board._copies[OWNER].sequence -= 1
            bench.board._copies[OWNER].rows.clear()
            bench.board._by_id.clear()
            bench.board._by_history.clear()
            bench.board._counts.clear()
            grant(engine.book, "b")
            await eventually(lambda: bench.leases == [(0, "a"), (0, "b")])


async def test_who_cannot_be_followed_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "disaggpair_router.leases.follow")
    with listening() as engine:
        port = engine.port
        async with lease_client() as client:
            bench = Bench(client, port)
            bench.endpoints.put(D)
            task = asyncio.create_task(bench.followers.run())
            await eventually(lambda: bench.followers.can_claim(OWNER))
            await asyncio.to_thread(engine.stop)
            await eventually(lambda: "cannot be followed" in caplog.text)
            with listening(port=port):
                await eventually(lambda: caplog.text.count("are followed") == 2)
            task.cancel()
            await asyncio.wait([task])
    assert caplog.text.count("cannot be followed") == 1
    assert KEY not in caplog.text
