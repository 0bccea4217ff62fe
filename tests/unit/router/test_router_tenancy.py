"""Tenants over sockets: who is let in, whose conversation is found, what engines get to see."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest

from disaggpair_bed.fakes.secretmount import SecretMount
from disaggpair_bed.fakes.upstream import (
    ScriptedEngine,
    answers,
    decode_handle,
    decoding,
    prefilling,
    scripted_engine,
)
from disaggpair_bed.routing import Dialogue, Reply, Routed, eventually, routed
from disaggpair_bed.simengine import RunningEngine, running_engine
from disaggpair_router.environment import Environment

LONG = "some words that make a prompt of more than sixty-four tokens " * 6
ID = {"conversation_id": "c-1"}
GATEWAY = "127.0.0.2"


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


@pytest.fixture
def mount(tmp_path: Path) -> SecretMount:
    one = SecretMount(tmp_path)
    one.write({"a": digest("key-a"), "b": digest("key-b")})
    return one


@pytest.fixture
def by_key(mount: SecretMount, tmp_path: Path) -> dict[str, Any]:
    return {"directory": str(tmp_path), "reload_s": 0.01}


BY_HEADER = {"header": "X-Tenant", "trusted_proxies": [f"{GATEWAY}/32"]}


class Engines:
    """Scripted engines; `seen` is every header value that reached one of them."""

    def __init__(self, prefill: ScriptedEngine, decode: ScriptedEngine) -> None:
        self.prefill, self.decode = prefill, decode

    @property
    def authorizations(self) -> set[str | None]:
        requests = [*self.prefill.requests, *self.decode.requests]
        return {one.headers.get("Authorization") for one in requests}

    @property
    def seen(self) -> str:
        requests = [*self.prefill.requests, *self.decode.requests]
        return " ".join(
            f"{name}: {value}" for one in requests for name, value in one.headers.items()
        )


@pytest.fixture
async def engines() -> AsyncIterator[Engines]:
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(decoding(**decode_handle())) as decode,
    ):
        yield Engines(prefill, decode)


@asynccontextmanager
async def fronted(engines: Engines, tenants: Any, engine_key: str = "") -> AsyncIterator[Routed]:
    async with routed(
        [engines.prefill],
        [engines.decode],
        environment=Environment(engine_key=engine_key),
        tenants=tenants,
    ) as front:
        yield front


@pytest.fixture
async def pair() -> AsyncIterator[tuple[RunningEngine, RunningEngine]]:
    async with (
        running_engine("prefill", "--no-enable-prefix-caching") as prefill,
        running_engine("decode") as decode,
    ):
        yield prefill, decode
        oracles = (prefill.engine.oracle, decode.engine.oracle)
        assert [oracle.violations for oracle in oracles] == [[], []]


async def from_gateway(front: Routed, **headers: str) -> int:
    """Status of a turn that comes from the gateway's address."""
    connector = aiohttp.TCPConnector(local_addr=(GATEWAY, 0))
    async with aiohttp.ClientSession(front.url, connector=connector) as http:
        body = {"messages": [{"role": "user", "content": "a"}]}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with http.post("/v1/chat/completions", json=body, headers=named) as response:
            await response.read()
            return response.status


@pytest.mark.parametrize(
    "headers", [{}, bearer("other"), {"X-Api-Key": "other"}, {"X-Tenant": "a"}]
)
async def test_a_caller_without_a_known_key_is_a_401(
    engines: Engines, by_key: Any, headers: dict[str, str]
) -> None:
    async with fronted(engines, by_key) as front:
        for reply in (
            await front.chat("a", headers=headers),
            await front.post("/v1/completions", {"prompt": "a"}, headers=headers),
            await front.get("/v1/models", headers=headers),
        ):
            assert reply.status == 401
            assert reply.headers["WWW-Authenticate"] == "Bearer"
            error = reply.json["error"]
            assert error["code"] == "invalid_api_key"
            assert error["request_id"] == reply.headers["X-Request-Id"]
        assert (await front.get("/healthz")).status == 200
        assert (await front.get("/readyz")).status == 200
    assert engines.seen == ""


async def test_a_stranger_is_refused_before_its_body_is_read(engines: Engines, by_key: Any) -> None:
    async with fronted(engines, by_key) as front:
        assert (await front.post("/v1/chat/completions", b"{")).status == 401
        reply = await front.post("/v1/chat/completions", b"{", headers=bearer("key-a"))
        assert reply.status == 400


async def test_the_official_client_understands_a_401(engines: Engines, by_key: Any) -> None:
    async with (
        fronted(engines, by_key) as front,
        openai.AsyncOpenAI(base_url=f"{front.url}/v1", api_key="other", max_retries=0) as client,
    ):
        with pytest.raises(openai.AuthenticationError, match="This API key is not known"):
            await client.models.list()


@pytest.mark.parametrize("headers", [bearer("key-a"), {"X-Api-Key": "key-a"}])
async def test_a_known_key_is_served(engines: Engines, by_key: Any, headers: Any) -> None:
    async with fronted(engines, by_key) as front:
        assert (await front.chat("a", headers=headers)).status == 200


async def changed(front: Routed, headers: Any) -> None:
    """Two turns, the second with another history, whose release follows."""
    await front.chat("one", headers=headers, **ID)
    await front.chat("other", headers=headers, **ID)
    await eventually(lambda: front.count("handle_releases_total", result="released") == 1)
    await front.chat("alone", headers=headers, n=2)
    await front.get("/v1/models", headers=headers)


async def test_h86_engines_never_see_a_tenants_key(engines: Engines, by_key: Any) -> None:
    async with fronted(engines, by_key) as front:
        await changed(front, {**bearer("key-a"), "X-Api-Key": "key-a", "X-Tenant": "b"})
        paths = [one.http.path for one in engines.prefill.requests]
        assert paths == [*["/v1/chat/completions"] * 2, "/v1/completions"]
    assert engines.authorizations == {None}
    assert "key-a" not in engines.seen
    assert "tenant" not in engines.seen.lower()


@pytest.mark.parametrize("closed", [True, False], ids=["tenants", "open"])
async def test_h86_engines_see_the_routers_own_key(
    engines: Engines, by_key: Any, closed: bool
) -> None:
    async with fronted(engines, by_key if closed else {}, "engine-key") as front:
        await changed(front, bearer("key-a"))
    assert engines.authorizations == {"Bearer engine-key"}
    assert "key-a" not in engines.seen


async def test_h86_an_open_routers_callers_show_their_own_keys(engines: Engines) -> None:
    async with fronted(engines, {}) as front:
        await changed(front, bearer("key-a"))
    assert engines.authorizations == {"Bearer key-a"}


async def test_an_open_router_with_an_engine_key_warns(
    engines: Engines, by_key: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with fronted(engines, by_key, "engine-key"):
        assert "engine key" not in caplog.text
    async with fronted(engines, {}, "engine-key"):
        assert "whoever reaches this router uses its engine key" in caplog.text
    assert "engine-key" not in caplog.text


@pytest.mark.parametrize("status", [401, 403])
async def test_an_engine_that_refuses_the_routers_key_is_not_the_clients_fault(
    engines: Engines, by_key: Any, status: int
) -> None:
    engines.decode.script = answers({"error": {"message": "no"}}, status=status)
    async with fronted(engines, by_key) as front:
        reply = await front.chat("a", headers=bearer("key-a"))
        assert reply.status == 502
        assert reply.json["error"]["message"] == "The engine refused this router."
    async with fronted(engines, {}) as front:
        assert (await front.chat("a", headers=bearer("key-a"))).status == status


async def turn(dialogue: Dialogue, key: str) -> Reply:
    return await dialogue.say(LONG, headers=bearer(key))


async def test_h77_two_tenants_with_one_id_never_read_each_others_blocks(
    pair: Any, by_key: Any
) -> None:
    prefill, decode = pair
    async with routed([prefill], [decode], tenants=by_key) as front:
        first, second = Dialogue(front, dict(ID)), Dialogue(front, dict(ID))
        await turn(first, "key-a")
        # The same id with the same words: all that the other tenant could know.
        second.messages = list(first.messages)
        await turn(second, "key-b")
        assert front.misses == {"first_turn": 2}
        assert decode.engine.oracle.count("consumed", "decode") == 0
        await turn(first, "key-a")
        await turn(second, "key-b")
        assert front.hits == 2


async def test_h77_a_history_without_an_id_is_found_for_its_tenant_only(
    pair: Any, by_key: Any
) -> None:
    prefill, decode = pair
    async with routed([prefill], [decode], tenants=by_key) as front:
        dialogue = Dialogue(front)
        await turn(dialogue, "key-a")
        await turn(dialogue.copy(), "key-b")
        assert front.misses == {"first_turn": 2}
        await turn(dialogue, "key-a")
        assert front.hits == 1


async def test_h77_two_keys_of_one_tenant_share_its_conversations(
    pair: Any, by_key: Any, mount: SecretMount
) -> None:
    mount.write({"a": f"{digest('key-a')}\n{digest('key-c')}"})
    prefill, decode = pair
    async with routed([prefill], [decode], tenants=by_key) as front:
        dialogue = Dialogue(front, dict(ID))
        await turn(dialogue, "key-a")
        await turn(dialogue, "key-c")
        assert front.hits == 1


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"model": "toy-lora"}, id="h60-adapter"),
        pytest.param({"cache_salt": "other"}, id="h79-salt"),
    ],
)
async def test_a_tenants_blocks_are_not_read_in_another_scope(
    pair: Any, by_key: Any, change: dict[str, Any]
) -> None:
    prefill, decode = pair
    async with routed([prefill], [decode], tenants=by_key) as front:
        dialogue = Dialogue(front, {**ID, "cache_salt": "salt"})
        await turn(dialogue, "key-a")
        dialogue.fields |= change
        await turn(dialogue, "key-a")
        assert front.misses == {"first_turn": 1, "scope": 1}
        assert decode.engine.oracle.count("consumed", "decode") == 0


async def test_h78_the_tenants_header_counts_from_the_gateway_only(engines: Engines) -> None:
    async with fronted(engines, BY_HEADER) as front:
        assert await from_gateway(front, X_Tenant="a") == 200
        assert await from_gateway(front) == 403
        assert await from_gateway(front, X_Tenant="a, b") == 403
        reply = await front.chat("a", headers={"X-Tenant": "a"})
        assert reply.status == 403
        assert reply.json["error"]["code"] == "forbidden"
        assert "WWW-Authenticate" not in reply.headers


async def test_h78_a_spoofed_header_beside_a_key_is_ignored_and_goes_nowhere(
    engines: Engines, by_key: Any
) -> None:
    async with fronted(engines, {**by_key, **BY_HEADER}) as front:
        spoofed = {**bearer("key-a"), "X-Tenant": "b"}
        assert (await front.chat("a", headers=spoofed, **ID)).status == 200
        honest = await front.chat("a", headers=bearer("key-a"), **ID)
        assert front.misses == {"first_turn": 1, "shorter": 1}
        assert honest.status == 200
        assert await from_gateway(front, X_Tenant="b", Authorization="Bearer key-a") == 403
    assert "x-tenant" not in engines.seen.lower()


@pytest.mark.parametrize("name", ["Authorization", "X-Api-Key"])
@pytest.mark.parametrize("closed", [True, False], ids=["tenants", "open"])
async def test_a_credential_that_was_sent_twice_is_a_400(
    engines: Engines, by_key: Any, name: str, closed: bool
) -> None:
    async with fronted(engines, by_key if closed else {}) as front:
        reply = await front.chat("a", headers=[(name, "Bearer key-a"), (name, "Bearer key-b")])
        assert reply.status == 400
        assert reply.json["error"]["message"] == f"The header {name} was sent 2 times."
    assert engines.seen == ""


async def test_h78_a_tenants_header_that_was_sent_twice_is_a_400(engines: Engines) -> None:
    async with fronted(engines, BY_HEADER) as front:
        connector = aiohttp.TCPConnector(local_addr=(GATEWAY, 0))
        async with aiohttp.ClientSession(front.url, connector=connector) as http:
            twice = [("X-Tenant", "a"), ("X-Tenant", "b")]
            async with http.get("/v1/models", headers=twice) as response:
                assert response.status == 400


async def test_keys_change_without_a_restart(
    engines: Engines, by_key: Any, mount: SecretMount
) -> None:
    async with fronted(engines, by_key) as front:

        async def status(key: str) -> int:
            return (await front.chat("a", headers=bearer(key))).status

        assert [await status("key-a"), await status("key-c")] == [200, 401]
        mount.write({"c": digest("key-c")})

        async def is_changed() -> bool:
            return [await status("key-a"), await status("key-c")] == [401, 200]

        await eventually(is_changed)
        mount.write({"c": "a mistake"})
        mount.write({"b": digest("key-b"), "c": digest("key-c")})

        async def is_changed_again() -> bool:
            return [await status("key-b"), await status("key-c")] == [200, 200]

        await eventually(is_changed_again)


@pytest.mark.parametrize("name", ["traceparent", "tracestate", "X-Vllm-Priority"])
async def test_a_header_that_cannot_be_sent_on_is_left_out(engines: Engines, name: str) -> None:
    async with fronted(engines, {}) as front:
        assert (await front.chat("a", headers={name: "caf\u00e9"})).status == 200
        assert (await front.chat("a", headers={name: "1"})).status == 200
    assert [one.headers.get(name) for one in engines.decode.requests] == [None, "1"]
