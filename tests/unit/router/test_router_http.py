"""Routes, bounds, ids and the official client."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any

import openai
import pytest

from disaggpair_bed.fakes.upstream import (
    ScriptedEngine,
    answers,
    completion,
    decode_handle,
    decoding,
    prefilling,
    scripted_engine,
    streams,
)
from disaggpair_bed.routing import Routed, eventually, routed
from disaggpair_bed.simengine import running_engine
from disaggpair_router.turnlog import LineFormatter


@pytest.fixture
async def decode() -> AsyncIterator[ScriptedEngine]:
    async with scripted_engine(decoding()) as engine:
        yield engine


@pytest.fixture
async def front(decode: ScriptedEngine) -> AsyncIterator[Routed]:
    async with (
        scripted_engine(prefilling()) as prefill,
        routed([prefill], [decode], limits={"max_body_bytes": 4096}) as one,
    ):
        yield one


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "The body is not valid JSON."),
        (b"[]", "The body must be a JSON object."),
        (b'{"stream": "yes"}', "stream must be true or false."),
        (b'{"conversation_id": 3}', "conversation_id must be a string."),
        pytest.param(
            b'{"conversation_id": "' + b"x" * 257 + b'"}',
            "The conversation id must have at most 256 bytes.",
            id="h80",
        ),
    ],
)
async def test_a_malformed_request_is_a_400(front: Routed, body: bytes, message: str) -> None:
    reply = await front.post("/v1/chat/completions", body)
    assert reply.status == 400
    assert reply.json["error"]["message"] == message
    assert reply.json["error"]["request_id"] == reply.headers["X-Request-Id"]


async def test_h80_a_long_id_in_a_header_is_a_400(front: Routed) -> None:
    reply = await front.chat("a", headers={"X-Conversation-Id": "x" * 257})
    assert reply.status == 400


async def test_h91_a_body_over_the_bound_is_a_413(front: Routed) -> None:
    reply = await front.chat("x" * 5_000)
    assert reply.status == 413
    assert reply.json["error"]["message"] == "The body must have at most 4096 bytes."


async def test_h91_a_body_of_unknown_length_is_bounded_too(front: Routed) -> None:
    async def body() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b" " * 1_000

    async with front.http.post("/v1/completions", data=body()) as response:
        assert response.status == 413


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/sleep"),
        ("POST", "/v1/load_lora_adapter"),
        ("GET", "/metrics"),
        ("POST", "/tokenize"),
        ("GET", "/v1/chat/completions"),
        ("POST", "/v1/models"),
        ("GET", "/v1/chat/completions/../../metrics"),
    ],
)
async def test_h90_other_routes_are_not_offered(front: Routed, method: str, path: str) -> None:
    async with front.http.request(method, path) as response:
        assert response.status == 404
        assert (await response.json())["error"]["code"] == "unknown_route"


async def test_a_conversation_id_is_minted_and_given_back(front: Routed) -> None:
    first = await front.chat("a")
    minted = first.headers["X-Conversation-Id"]
    assert re.fullmatch(r"[0-9a-f]{32}", minted)
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": first.text},
        {"role": "user", "content": "b"},
    ]
    second = await front.chat(*messages, headers={"X-Conversation-Id": minted})
    assert second.headers["X-Conversation-Id"] == minted
    assert front.hits == 1


async def test_the_bodys_id_comes_before_headers_in_their_order(
    front: Routed, decode: ScriptedEngine
) -> None:
    headers = {"X-Session-Id": "s", "X-Conversation-Id": "c"}
    assert (await front.chat("a", headers=headers)).headers["X-Conversation-Id"] == "c"
    reply = await front.chat("a", headers=headers, conversation_id="b")
    assert reply.headers["X-Conversation-Id"] == "b"
    assert all("conversation_id" not in one.body for one in decode.requests)


async def test_h80_an_id_that_is_no_header_value_is_not_given_back(front: Routed) -> None:
    reply = await front.chat("a", conversation_id="a\r\nX-Evil: 1")
    assert reply.status == 400
    assert "X-Evil" not in reply.headers
    other = await front.chat("a", conversation_id="caf\u00e9")
    assert other.status == 200
    assert "X-Conversation-Id" not in other.headers


@pytest.mark.parametrize("given", ["", "x" * 129, "caf\u00e9", "a way=PULL"])
async def test_h87_a_request_id_that_is_not_fit_for_logs_is_replaced(
    front: Routed, given: str
) -> None:
    reply = await front.chat("a", headers={"X-Request-Id": given})
    assert re.fullmatch(r"[0-9a-f]{32}", reply.headers["X-Request-Id"])


async def test_models_are_an_engines() -> None:
    async with (
        running_engine("prefill") as prefill,
        running_engine("decode") as decode,
        routed([prefill], [decode]) as front,
    ):
        assert (await front.get("/v1/models")).json["data"][0]["id"] == "toy"


async def test_an_answer_without_our_keys_is_passed_on_as_it_came() -> None:
    body = completion()
    del body["kv_transfer_params"]
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(answers(body)) as decode,
        routed([prefill], [decode]) as front,
    ):
        assert (await front.chat("a")).json == body


async def test_metrics_have_a_port_of_their_own() -> None:
    with ExitStack() as stack:
        free = stack.enter_context(socket.socket())
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(decoding()) as decode,
        routed([prefill], [decode], metrics_port=port) as front,
    ):
        await front.chat("a", conversation_id="c")
        async with front.http.get(f"http://127.0.0.1:{port}/metrics") as response:
            text = await response.text()
    for line in (
        'disaggpair_router_turns_total{way="FULL"} 1.0',
        'disaggpair_router_kv_lookups_total{reason="first_turn",result="miss"} 1.0',
        'disaggpair_router_leg_seconds_count{leg="prefill"} 1.0',
        "disaggpair_router_handles 1.0",
        'disaggpair_router_in_flight{role="decode"} 0.0',
    ):
        assert line in text


@pytest.mark.parametrize("style", ["human", "json"])
async def test_h89_a_turns_line_has_no_prompt_key_or_id(
    front: Routed, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, style: Any
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(caplog.handler, "formatter", LineFormatter(style))
    headers = {"Authorization": "Bearer secret-key", "X-Request-Id": "r-1"}
    await front.chat("secret words", headers=headers, conversation_id="secret-id")
    await front.chat("secret words", headers=headers, n=2)
    first, second = [one for one in caplog.records if one.name == "disaggpair_router.turn"]
    line = LineFormatter(style).format(first)
    assert "secret" not in caplog.text + line
    assert "r-1" in line
    assert "first_turn" in line
    assert "FULL" in line
    assert "40" in line
    assert "SINGLE" in LineFormatter(style).format(second)


async def test_an_unexpected_exception_is_a_500_that_says_nothing(
    front: Routed, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(front.router.parts.routes.turns._decode, "run", broken)
    reply = await front.chat("a")
    assert reply.status == 500
    assert b"secret" not in reply.raw
    assert front.count("errors_total", kind="internal_error") == 1


async def test_an_unexpected_exception_in_a_stream_is_its_last_event(
    front: Routed, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def breaks(*given: Any) -> None:
        client = given[-2]
        client.send(b'data: {"choices": []}\n\n')
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(front.router.parts.routes.turns._decode, "run", breaks)
    reply = await front.chat("a", stream=True)
    assert reply.status == 200
    assert reply.chunks[-1]["error"]["code"] == "internal_error"
    assert b"secret" not in reply.raw


@pytest.fixture
async def served() -> AsyncIterator[Routed]:
    async with (
        running_engine("prefill", "--no-enable-prefix-caching") as prefill,
        running_engine("decode") as engine,
        routed([prefill], [engine]) as one,
    ):
        yield one


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_the_official_async_client_holds_a_conversation(served: Routed, stream: bool) -> None:
    messages: list[Any] = []
    async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="k") as client:
        for number in range(3):
            messages.append({"role": "user", "content": f"{number} " + "word " * 100})
            if stream:
                chunks = await client.chat.completions.create(
                    model="toy",
                    messages=messages,
                    stream=True,
                    stream_options={"include_usage": True},
                    extra_body={"conversation_id": "c"},
                )
                collected = [chunk async for chunk in chunks]
                assert collected[-1].usage is not None
                text = "".join(
                    chunk.choices[0].delta.content or "" for chunk in collected if chunk.choices
                )
                messages.append({"role": "assistant", "content": text})
            else:
                answer = await client.chat.completions.create(
                    model="toy", messages=messages, extra_body={"conversation_id": "c"}
                )
                # With everything that the library adds to a message.
                messages.append(answer.choices[0].message.model_dump())
    assert served.hits == 2


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_the_official_sync_client_is_served(served: Routed, stream: bool) -> None:
    def ask() -> str:
        with openai.OpenAI(base_url=f"{served.url}/v1", api_key="k", max_retries=0) as client:
            if not stream:
                whole = client.completions.create(model="toy", prompt="once", max_tokens=5)
                return whole.choices[0].text
            parts = client.completions.create(model="toy", prompt="once", max_tokens=5, stream=True)
            return "".join(part.choices[0].text for part in parts)

    assert await asyncio.to_thread(ask)


async def test_the_official_client_understands_our_errors(served: Routed) -> None:
    async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="k") as client:
        with pytest.raises(openai.NotFoundError, match="does not exist"):
            await client.chat.completions.create(
                model="other", messages=[{"role": "user", "content": "a"}]
            )


async def test_the_official_client_sees_an_error_inside_a_stream() -> None:
    begun = b'data: {"choices": [{"index": 0, "delta": {"content": "Hel"}}]}\n\n'
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(streams(begun, b"", cut=True)) as engine,
        routed([prefill], [engine]) as front,
        openai.AsyncOpenAI(base_url=f"{front.url}/v1", api_key="k", max_retries=0) as client,
    ):
        chunks = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "a"}], stream=True
        )
        with pytest.raises(openai.APIError, match=r"ended before its end marker|broke off"):
            _ = [chunk async for chunk in chunks]


async def test_h57_an_older_engines_stream_has_usage_only_when_asked_for() -> None:
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(decoding(**decode_handle())) as engine,
        routed([prefill], [engine], kv={"handle_in_stream": False}) as front,
    ):
        without = await front.chat("a", stream=True)
        asked = await front.chat("a", stream=True, stream_options={"include_usage": True})
        assert not any("usage" in chunk for chunk in without.chunks)
        assert asked.chunks[-1]["usage"]["prompt_tokens"] == 40
        assert asked.text == without.text == "Hello there"
        assert "stream_options" not in engine.requests[-1].body
        assert front.handles == 2
        await eventually(lambda: front.count("in_flight", role="decode") == 0)


@pytest.mark.parametrize("fails", [False, True], ids=["answered", "refused"])
async def test_h92_a_waiting_client_gets_comments_where_they_are_wanted(fails: bool) -> None:
    gate = asyncio.Event()

    async def slow(recorded: Any) -> Any:
        await gate.wait()
        script = answers({"error": {"message": "no"}}, status=400) if fails else decoding()
        return await script(recorded)

    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(slow) as engine,
        routed([prefill], [engine], timeouts={"keepalive_s": 0.05}) as front,
    ):
        body = {"messages": [{"role": "user", "content": "a"}], "stream": True}
        async with front.http.post("/v1/chat/completions", json=body) as response:
            assert response.status == 200
            comment = b": keep-alive\n\n"
            assert await response.content.readexactly(2 * len(comment)) == 2 * comment
            gate.set()
            rest = (await response.read()).replace(comment, b"")
        assert rest.endswith(b"data: [DONE]\n\n") is not fails
        assert (b'"message":"no"' in rest) is fails
        whole = await front.chat("a")
        assert whole.status == (400 if fails else 200)


async def test_h18_a_comment_is_not_a_first_byte_of_decode() -> None:
    gate = asyncio.Event()

    async def slow(recorded: Any) -> Any:
        await gate.wait()
        return await decoding()(recorded)

    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(slow) as engine,
        routed([prefill], [engine], timeouts={"keepalive_s": 0.05}) as front,
    ):
        body = {"messages": [], "stream": True}
        async with front.http.post("/v1/chat/completions", json=body) as response:
            await response.content.readany()
            response.close()
        await eventually(lambda: front.router.parts.running.abandoned == 1)
        assert engine.lost_connections == 0
        gate.set()
        await eventually(lambda: front.count("client_disconnects_total", stage="decode") == 1)
