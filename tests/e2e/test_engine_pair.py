"""A real pair with the connector: what it says at its start, and turns by the wire contract."""

import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from disaggpair_bed.cpu.model import SERVED_NAME
from disaggpair_bed.cpu.pair import Pair
from disaggpair_connector import __version__, contract

Json = dict[str, Any]

ANSWER_TOKENS = 48
FIRST_TURN: Json = {"do_remote_decode": True, "do_remote_prefill": False}


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    timeout = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(timeout=timeout, raise_for_status=True) as session:
        yield session


async def test_both_engines_say_once_what_they_run_with(engine_pair: Pair) -> None:
    for engine, role in (
        (engine_pair.prefill, contract.PREFILL_ROLE),
        (engine_pair.decode, contract.DECODE_ROLE),
    ):
        address = urlsplit(engine.url).hostname
        said = re.findall(
            rf"DisaggPairConnector {re.escape(__version__)}: (.*)", engine.log.read_text()
        )
        assert said == [
            f"vllm=0.32.0 nixl=1.5.1 role={role} bidirectional=on recompute_threshold_tokens=64 "
            f"decode_ttl_s=480 prefill_lease_s=30 backends=UCX leases={address}:5700"
        ]


async def test_each_later_turn_reads_all_that_d_holds(
    engine_pair: Pair, http: aiohttp.ClientSession
) -> None:
    messages = [{"role": "user", "content": "hello world " * 60}]
    handle = None
    for turn in range(4):
        before = await tokens_read(http, engine_pair)
        await_p = await chat(http, engine_pair.prefill.url, messages, 1, handle or FIRST_TURN)
        read = await tokens_read(http, engine_pair) - before
        assert read == (handle["remote_num_tokens"] if handle else 0), f"turn {turn}"
        answer = await chat(
            http,
            engine_pair.decode.url,
            messages,
            ANSWER_TOKENS,
            await_p[contract.KV_TRANSFER_PARAMS],
        )
        handle = answer[contract.KV_TRANSFER_PARAMS]
        messages += [
            answer["choices"][0]["message"],
            {"role": "user", "content": "and next? " * 10},
        ]


async def test_what_was_read_gives_the_answer_of_what_is_computed(
    engine_pair: Pair, http: aiohttp.ClientSession
) -> None:
    prompt = [5 + number % 200 for number in range(700)]
    p_leg = await complete(http, engine_pair.prefill.url, prompt, 1, FIRST_TURN)
    d_leg = await complete(
        http,
        engine_pair.decode.url,
        prompt,
        ANSWER_TOKENS,
        p_leg[contract.KV_TRANSFER_PARAMS],
    )
    longer = [*prompt, *d_leg["choices"][0]["token_ids"], *range(10, 90)]
    before = await tokens_read(http, engine_pair)
    handle = d_leg[contract.KV_TRANSFER_PARAMS]
    after_read = await complete(http, engine_pair.prefill.url, longer, 1, handle)
    assert await tokens_read(http, engine_pair) - before == len(prompt) + ANSWER_TOKENS - 1
    computed = await complete(http, engine_pair.prefill.url, longer, 1, FIRST_TURN)
    assert top_logprobs(after_read) == pytest.approx(top_logprobs(computed), abs=0.05)


async def chat(
    http: aiohttp.ClientSession, url: str, messages: list[Json], tokens: int, params: Json
) -> Json:
    """One leg by the chat API."""
    return await _leg(http, f"{url}/v1/chat/completions", {"messages": messages}, tokens, params)


async def complete(
    http: aiohttp.ClientSession, url: str, prompt: list[int], tokens: int, params: Json
) -> Json:
    """One leg whose history is token ids, so that it continues the one before exactly."""
    asked = {"prompt": prompt, "return_token_ids": True, "logprobs": 5}
    return await _leg(http, f"{url}/v1/completions", asked, tokens, params)


async def _leg(
    http: aiohttp.ClientSession, url: str, asked: Json, tokens: int, params: Json
) -> Json:
    body = {
        **asked,
        "model": SERVED_NAME,
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        contract.KV_TRANSFER_PARAMS: params,
    }
    async with http.post(url, json=body) as response:
        answer: Json = await response.json()
    return answer


def top_logprobs(answer: Json) -> dict[str, float]:
    """Log probabilities of the likeliest first tokens, by token."""
    (first, *_) = answer["choices"][0]["logprobs"]["top_logprobs"]
    return dict(first)


async def tokens_read(http: aiohttp.ClientSession, pair: Pair) -> float:
    """Prompt tokens that P has read from D since its start."""
    async with http.get(f"{pair.prefill.url}/metrics") as response:
        text = await response.text()
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "vllm:prompt_tokens_by_source_total"
        and sample.labels["source"] == "external_kv_transfer"
    )
