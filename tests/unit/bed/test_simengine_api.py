"""The HTTP face of the simulated engine: shapes, refusals, faults."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from disaggpair_bed.simengine import RunningEngine, running_engine
from disaggpair_bed.simengine.twolegs import TURN_1, Client, until

HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}]}


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def client(session: aiohttp.ClientSession) -> Client:
    return Client(session)


@pytest.fixture
async def engine() -> AsyncIterator[RunningEngine]:
    async with running_engine() as engine:
        yield engine


async def test_stream_and_whole_reply_say_the_same(client: Client, engine: RunningEngine) -> None:
    whole = await client.post(engine.url, HELLO)
    streamed = await client.post(engine.url, {**HELLO, "stream": True})
    assert whole.text == streamed.text != ""
    assert whole.finish_reason == streamed.finish_reason == "stop"


async def test_answers_are_the_same_every_time_and_differ_between_prompts(
    client: Client, engine: RunningEngine
) -> None:
    other = {"messages": [{"role": "user", "content": "hello!"}]}
    first, again, different = [
        await client.post(engine.url, body) for body in (HELLO, HELLO, other)
    ]
    assert first.text == again.text != different.text


async def test_a_stream_has_the_shape_of_vllm(client: Client, engine: RunningEngine) -> None:
    body = {**HELLO, "stream": True, "stream_options": {"include_usage": True}, "max_tokens": 3}
    answer = await client.post(engine.url, {**body, "kv_transfer_params": TURN_1})
    first, *middle, last, usage = answer.chunks
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "kv_transfer_params" not in first
    assert [chunk["kv_transfer_params"] for chunk in middle] == [None, None]
    assert last["choices"][0]["finish_reason"] == "length"
    assert last["kv_transfer_params"]["do_remote_prefill"] is True
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 3
    assert "kv_transfer_params" not in usage
    assert answer.done


async def test_before_0_33_a_stream_has_no_handle(client: Client) -> None:
    async with running_engine(release="0.32.0") as engine:
        params = {**TURN_1, "do_remote_decode": False, "x": 1}
        streamed = await client.post(
            engine.url, {**HELLO, "stream": True, "kv_transfer_params": params}
        )
        assert all("kv_transfer_params" not in chunk for chunk in streamed.chunks)
        whole = await client.post(engine.url, {**HELLO, "kv_transfer_params": params})
        assert whole.params is not None
        assert "remote_registration_generation" not in whole.params


async def test_the_request_id_header_is_part_of_the_ids(
    client: Client, engine: RunningEngine
) -> None:
    answer = await client.post(
        engine.url, {**HELLO, "kv_transfer_params": TURN_1}, **{"X-Request-Id": "abc"}
    )
    assert answer.chunks[0]["id"] == "chatcmpl-abc"
    assert answer.params is not None
    prefix, _, suffix = answer.params["remote_request_id"].rpartition("-")
    assert prefix == "chatcmpl-abc"
    assert len(bytes.fromhex(suffix)) == 4


@pytest.mark.parametrize(
    ("change", "status", "text"),
    [
        ({"max_tokens": 1, "min_tokens": 5}, 400, "min_tokens must be less than or equal"),
        ({"max_tokens": 0}, 400, "max_tokens must be at least 1"),
        ({"stream_options": {"include_usage": True}}, 400, "Stream options"),
        ({"model": "other"}, 404, "The model `other` does not exist."),
        ({"messages": "hi"}, 400, "messages"),
        ({"messages": [{"content": "hi"}]}, 400, "role"),
        ({"kv_transfer_params": []}, 400, "valid dictionary"),
        ({"n": 2, "temperature": 0}, 400, "greedy"),
        ({"kv_transfer_params": {"prompt_token_ids": ["a"]}}, 400, "token ids"),
    ],
)
async def test_a_bad_request_is_refused_in_the_openai_shape(
    client: Client, engine: RunningEngine, change: dict[str, Any], status: int, text: str
) -> None:
    answer = await client.post(engine.url, {**HELLO, **change})
    assert answer.status == status
    assert answer.error is not None
    assert text in answer.error["message"]
    assert answer.error["code"] == status


async def test_a_prompt_over_the_context_length_is_refused(client: Client) -> None:
    async with running_engine("both", "--max-model-len", "32") as engine:
        body = {"messages": [{"role": "user", "content": "abcd" * 40}]}
        answer = await client.post(engine.url, body)
        assert answer.status == 400
        assert answer.error is not None
        assert "maximum context length" in answer.error["message"]
        short = await client.post(engine.url, {**HELLO, "ignore_eos": True})
        assert short.finish_reason == "length"
        assert short.usage is not None
        assert short.usage["total_tokens"] == 32


async def test_max_completion_tokens_wins_over_max_tokens(
    client: Client, engine: RunningEngine
) -> None:
    answer = await client.post(engine.url, {**HELLO, "max_tokens": 1, "max_completion_tokens": 4})
    assert answer.usage is not None
    assert answer.usage["completion_tokens"] == 4


async def test_min_tokens_and_ignore_eos_hold_off_the_end(
    client: Client, engine: RunningEngine
) -> None:
    longer = await client.post(engine.url, {**HELLO, "min_tokens": 70})
    assert longer.usage is not None
    assert longer.finish_reason == "stop"
    assert longer.usage["completion_tokens"] == 71
    limited = await client.post(engine.url, {**HELLO, "ignore_eos": True, "max_tokens": 90})
    assert limited.usage is not None
    assert limited.finish_reason == "length"
    assert limited.usage["completion_tokens"] == 90


@pytest.mark.parametrize("stream", [False, True])
async def test_a_stop_string_ends_without_a_handle_and_frees(
    client: Client, engine: RunningEngine, stream: bool
) -> None:
    full = await client.post(engine.url, HELLO)
    stop = full.text[9:14]
    params = {"kv_transfer_params": {"do_remote_decode": False, "x": 1}}
    body = {**HELLO, "stop": [stop], "stream": stream, **params}
    answer = await client.post(engine.url, body)
    assert answer.text == full.text[: full.text.index(stop)]
    assert answer.finish_reason == "stop"
    assert answer.params is None
    await until(lambda: not engine.engine.in_flight)
    assert engine.engine.core.pool.usage == 0


async def test_a_stop_token_ends_with_a_handle(client: Client, engine: RunningEngine) -> None:
    body = {**HELLO, "return_token_ids": True}
    full = await client.post(engine.url, body)
    token = full.chunks[0]["choices"][0]["token_ids"][4]
    params = {"kv_transfer_params": TURN_1}
    answer = await client.post(engine.url, {**body, "stop_token_ids": [token], **params})
    assert answer.finish_reason == "stop"
    assert answer.chunks[0]["choices"][0]["stop_reason"] == token
    assert answer.params is not None


async def test_n_answers_share_one_reply(client: Client, engine: RunningEngine) -> None:
    answer = await client.post(engine.url, {**HELLO, "n": 3, "kv_transfer_params": TURN_1})
    choices = answer.chunks[0]["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2]
    assert len(engine.engine.core.connector.leases) == 3


async def test_completions_take_text_batches_and_token_ids(
    session: aiohttp.ClientSession, engine: RunningEngine
) -> None:
    client = Client(session, "/v1/completions")
    one = await client.post(engine.url, {"prompt": "once upon a time", "max_tokens": 4})
    echoed = await client.post(
        engine.url, {"prompt": "once upon a time", "max_tokens": 4, "echo": True}
    )
    assert echoed.text == "once upon a time" + one.text
    batch = await client.post(engine.url, {"prompt": ["once upon a time", "b"], "max_tokens": 4})
    assert batch.chunks[0]["choices"][0]["text"] == one.text
    assert batch.chunks[0]["choices"][1]["text"] not in ("", one.text)
    ids = await client.post(engine.url, {"prompt": [1, 2, 3], "max_tokens": 4, "stream": True})
    assert ids.finish_reason == "length"
    assert one.chunks[0]["id"].startswith("cmpl-")


async def test_a_tokenised_chat_prompt_skips_the_template(
    client: Client, engine: RunningEngine
) -> None:
    body = {**HELLO, "return_token_ids": True}
    rendered = await client.post(engine.url, body)
    ids = rendered.chunks[0]["prompt_token_ids"]
    other = {"messages": [{"role": "user", "content": "ignored"}]}
    given = await client.post(
        engine.url, {**other, "kv_transfer_params": {**TURN_1, "prompt_token_ids": ids}}
    )
    assert given.text == rendered.text


async def test_thinking_goes_into_its_own_field(client: Client) -> None:
    flags = ("--reasoning-parser", "toy", "--sim-thinking-tokens", "6")
    async with running_engine("both", *flags) as engine:
        whole = await client.post(engine.url, HELLO)
        message = whole.chunks[0]["choices"][0]["message"]
        assert len(message["reasoning"]) == 24
        assert message["content"] not in ("", None)
        streamed = await client.post(engine.url, {**HELLO, "stream": True})
        deltas = [chunk["choices"][0]["delta"] for chunk in streamed.chunks]
        assert "".join(d.get("reasoning", "") for d in deltas) == message["reasoning"]
        assert streamed.text == message["content"]


async def test_a_forced_tool_call_is_answered_by_one(client: Client, engine: RunningEngine) -> None:
    tools = [{"type": "function", "function": {"name": "look_up", "parameters": {}}}]
    body = {**HELLO, "tools": tools, "tool_choice": "required"}
    whole = await client.post(engine.url, body)
    call = whole.chunks[0]["choices"][0]["message"]["tool_calls"][0]
    assert call["function"]["name"] == "look_up"
    assert whole.finish_reason == "tool_calls"
    streamed = await client.post(engine.url, {**body, "stream": True})
    pieces = [
        piece["function"]["arguments"]
        for chunk in streamed.chunks
        for piece in chunk["choices"][0]["delta"].get("tool_calls", ())
    ]
    assert "".join(pieces) == call["function"]["arguments"].replace('": "', '":"')


async def test_usage_shows_cached_tokens_only_with_the_flag(client: Client) -> None:
    body = {"messages": [{"role": "user", "content": "abcd" * 64}]}
    async with running_engine("both", "--enable-prompt-tokens-details") as engine:
        await client.post(engine.url, body)
        again = await client.post(engine.url, body)
        assert again.usage is not None
        assert again.usage["prompt_tokens_details"] == {"cached_tokens": 64}
    async with running_engine("both") as engine:
        plain = await client.post(engine.url, body)
        assert plain.usage is not None
        assert plain.usage["prompt_tokens_details"] is None


async def test_plain_routes(session: aiohttp.ClientSession) -> None:
    async with running_engine("both", "--served-model-name", "a", "b") as engine:
        for route, status in (("/health", 200), ("/nowhere", 404), ("/v1/embeddings", 404)):
            async with session.get(engine.url + route) as response:
                assert response.status == status
        async with session.get(engine.url + "/v1/models") as response:
            assert [card["id"] for card in (await response.json())["data"]] == ["a", "b"]
        async with session.get(engine.url + "/version") as response:
            assert await response.json() == {"version": "0.33.0"}
        async with session.get(engine.url + "/v1/chat/completions") as response:
            assert response.status == 405


async def test_metrics_have_the_names_of_vllm(
    session: aiohttp.ClientSession, client: Client, engine: RunningEngine
) -> None:
    await client.post(engine.url, HELLO)
    async with session.get(engine.url + "/metrics") as response:
        page = await response.text()
    labels = 'engine="0",model_name="toy"'
    for sample in (
        f'vllm:prompt_tokens_by_source_total{{{labels},source="local_compute"}} 12.0',
        f'vllm:prompt_tokens_by_source_total{{{labels},source="local_cache_hit"}} 0.0',
        f'vllm:prompt_tokens_by_source_total{{{labels},source="external_kv_transfer"}} 0.0',
        f"vllm:nixl_num_kv_expired_reqs_total{{{labels}}} 0.0",
        f"vllm:nixl_num_failed_transfers_total{{{labels}}} 0.0",
        f"vllm:nixl_num_notifications_after_expiry_total{{{labels}}} 0.0",
        f"vllm:nixl_bytes_transferred_count{{{labels}}} 0.0",
        f"vllm:kv_cache_usage_perc{{{labels}}} 0.0",
        f"vllm:num_requests_running{{{labels}}} 0.0",
        f"vllm:num_requests_waiting{{{labels}}} 0.0",
        f"vllm:external_prefix_cache_queries_total{{{labels}}} 12.0",
        f"vllm:external_prefix_cache_hits_total{{{labels}}} 0.0",
    ):
        assert sample in page.splitlines()


async def test_keys_guard_the_v1_routes_only(client: Client) -> None:
    async with running_engine("both", "--api-key", "secret") as engine:
        assert (await client.post(engine.url, HELLO)).status == 401
        given = await client.post(engine.url, HELLO, Authorization="Bearer secret")
        assert given.status == 200
        async with client.session.get(engine.url + "/health") as response:
            assert response.status == 200


async def test_without_control_there_are_no_sim_routes(session: aiohttp.ClientSession) -> None:
    async with (
        running_engine(control=False) as engine,
        session.get(engine.url + "/sim/oracle") as response,
    ):
        assert response.status == 404


async def test_a_client_that_leaves_aborts_its_request(
    session: aiohttp.ClientSession, client: Client
) -> None:
    async with running_engine("both", "--sim-token-s", "0.01") as engine:
        body = {**HELLO, "stream": True, "ignore_eos": True, "max_tokens": 5000}
        response = await session.post(engine.url + client.path, json=body)
        await response.content.readany()
        response.close()
        await until(lambda: not engine.engine.in_flight)
        assert engine.engine.core.stats.finished == {"abort": 1}
        assert engine.engine.core.pool.usage == 0


async def test_a_dead_core_answers_500_and_stops_listening(
    session: aiohttp.ClientSession, client: Client, engine: RunningEngine
) -> None:
    params = {"do_remote_prefill": True, "remote_block_ids": None}
    answer = await client.post(engine.url, {**HELLO, "kv_transfer_params": params})
    assert answer.status == 500
    assert answer.error is not None
    assert "promised" in engine.engine.death
    await until(lambda: engine.closed)
    with pytest.raises(aiohttp.ClientConnectorError):
        await session.get(engine.url + "/health")


async def test_a_dead_core_ends_streams_with_an_error_event(client: Client) -> None:
    async with running_engine("both", "--sim-token-s", "0.01") as engine:
        body = {**HELLO, "stream": True, "ignore_eos": True, "max_tokens": 5000}
        stream = asyncio.create_task(client.post(engine.url, body))
        await until(lambda: engine.engine.core.stats.generation_tokens)
        engine.engine.crash("a test")
        answer = await stream
        assert answer.status == 200
        assert answer.error is not None
        assert answer.done
