"""The router's client at a real lease listener, and at ones that do not behave."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from disaggpair_bed.fakes.listening import Listening, lease_client, listening
from disaggpair_bed.fakes.rawhttp import BOUND_S, grant
from disaggpair_router.kv import checked_handle
from disaggpair_router.leases.client import LeaseClient, ListenerError, listener_of
from disaggpair_router.leases.place import Place
from disaggpair_router.leases.rows import Event

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
PLACE = Place(b"i" * 16, b"s" * 8, b"h" * 16, 7)


@pytest.fixture
def engine() -> Iterator[Listening]:
    with listening() as one:
        yield one


@pytest.fixture
async def client() -> AsyncIterator[LeaseClient]:
    async with lease_client() as one:
        yield one


async def taken(client: LeaseClient, url: str, since: int, count: int) -> list[Event]:
    """The next events of a watch, bookmarks left out."""
    found = []
    async with asyncio.timeout(BOUND_S):
        async for event in client.watch(url, "e1", since):
            if event.row is not None:
                found.append(event)
            if len(found) == count:
                break
    return found


async def test_it_lists_what_the_engine_holds(engine: Listening, client: LeaseClient) -> None:
    grant(engine.book, "a", tokens=40, conversation=PLACE.text())
    grant(engine.book, "b", conversation="another router's")
    listing = await client.listing(engine.url)
    assert (listing.epoch, listing.sequence) == ("e1", 2)
    assert [(row.id, row.place, row.state, row.tokens) for row in listing.rows] == [
        ("a", PLACE, "granted", 40),
        ("b", None, "granted", 600),
    ]


async def test_it_watches_what_happens_after_its_list(
    engine: Listening, client: LeaseClient
) -> None:
    grant(engine.book, "a")
    grant(engine.book, "b")
    engine.book.release("a")
    events = await taken(client, engine.url, 1, 2)
    assert [(event.sequence, event.type, event.reason) for event in events] == [
        (2, "granted", ""),
        (3, "ended", "released"),
    ]


async def test_a_claim_gives_a_handle_and_can_be_had_once(
    engine: Listening, client: LeaseClient
) -> None:
    grant(engine.book, "a")
    handle = checked_handle(await client.claim(engine.url, "a", "read"))
    assert (handle.engine, handle.tokens) == ("d-engine", 600)
    assert handle.pair_params["lease"] == "a"
    with pytest.raises(ListenerError) as refused:
        await client.claim(engine.url, "a", "read")
    assert refused.value.reason == "claimed"
    engine.book.read("a", handle.pair_params["token"])
    assert engine.book.counts()["reading"] == 1


async def test_a_claim_for_a_direct_turn_names_the_lease(
    engine: Listening, client: LeaseClient
) -> None:
    grant(engine.book, "a")
    params = await client.claim(engine.url, "a", "direct")
    assert params["disaggpair"]["lease"] == "a"
    assert "remote_block_ids" not in params
    engine.book.redeem_direct("a", params["disaggpair"]["token"])


async def test_a_release_ends_a_lease_and_says_when_there_is_none(
    engine: Listening, client: LeaseClient
) -> None:
    grant(engine.book, "a")
    await client.release(engine.url, "a")
    assert sum(engine.book.counts().values()) == 0
    with pytest.raises(ListenerError) as refused:
        await client.release(engine.url, "a")
    assert refused.value.reason == "gone"


async def test_a_place_that_the_engine_does_not_know_is_gone(
    engine: Listening, client: LeaseClient
) -> None:
    for epoch, since in (("another", 0), ("e1", 7)):
        with pytest.raises(ListenerError) as refused:
            async for _ in client.watch(engine.url, epoch, since):
                pass
        assert refused.value.reason == "gone"


async def test_a_wrong_key_is_named_and_never_shown(engine: Listening) -> None:
    async with lease_client("wrong-key") as client:
        with pytest.raises(ListenerError, match="DISAGGPAIR_LEASE_KEY") as refused:
            await client.listing(engine.url)
    assert refused.value.reason == "unreachable"
    assert "wrong-key" not in str(refused.value)


async def test_nobody_at_the_port_is_unreachable(client: LeaseClient) -> None:
    with listening() as gone:
        url = gone.url
    for ask in (client.listing(url), client.claim(url, "a", "read"), client.release(url, "a")):
        with pytest.raises(ListenerError) as refused:
            await ask
        assert refused.value.reason == "unreachable"


async def test_a_listener_that_does_not_answer_costs_the_claims_limit() -> None:
    async def silent(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with serving(silent) as url, lease_client(claim_s=0.05) as client:
        with pytest.raises(ListenerError, match="did not answer") as refused:
            await client.claim(url, "a", "read")
    assert refused.value.reason == "unreachable"


@pytest.mark.parametrize("body", [b"", b"[]", b'{"leases":1}', b"\xff", b"[" * 10_000])
async def test_an_answer_of_something_else_is_unreachable(client: LeaseClient, body: bytes) -> None:
    async def other(_: web.Request) -> web.Response:
        return web.Response(body=body)

    async with serving(other) as url:
        for ask in (client.listing(url), client.claim(url, "a", "read")):
            with pytest.raises(ListenerError) as refused:
                await ask
            assert refused.value.reason == "unreachable"
        if body:
            with pytest.raises(ListenerError):
                async for _ in client.watch(url, "e1", 0):
                    pass


async def test_a_line_without_an_end_is_not_read_for_ever(client: LeaseClient) -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(100):
            await response.write(b"x" * 65_536)
        return response

    async with serving(endless) as url:
        with pytest.raises(ListenerError, match="broke off"):
            async for _ in client.watch(url, "e1", 0):
                pass


@pytest.mark.parametrize("status", [301, 500, 503])
async def test_another_status_is_unreachable(client: LeaseClient, status: int) -> None:
    async def other(_: web.Request) -> web.Response:
        return web.Response(status=status, headers={"Location": "/leases"})

    async with serving(other) as url:
        with pytest.raises(ListenerError, match=str(status)):
            await client.listing(url)


def test_a_listener_is_beside_its_engine() -> None:
    assert listener_of("http://10.0.0.7:8000", 5701) == "http://10.0.0.7:5701"
    assert listener_of("http://[fd00::7]:8000", 5700) == "http://[fd00::7]:5700"


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    """A server with one handler for everything; its URL."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()
