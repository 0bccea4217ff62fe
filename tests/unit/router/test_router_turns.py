"""Conversations over two simulated engines, whose text depends on the KV they really read."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from disaggpair_bed.routing import Dialogue, eventually, routed
from disaggpair_bed.simengine import running_engine

LONG = "some words that make a prompt of more than sixty-four tokens " * 6
ID = {"conversation_id": "c-1"}


async def spoken(dialogue: Dialogue, turns: int, **fields: Any) -> list[str]:
    texts = []
    for number in range(turns):
        reply = await dialogue.say(f"{number} {LONG}", **fields)
        assert reply.status == 200
        assert b"kv_transfer_params" not in reply.raw
        texts.append(reply.text)
    return texts


async def alone(turns: int, *flags: str, **fields: Any) -> list[str]:
    """The texts of one engine that does both, as the truth to compare with."""
    async with (
        running_engine("both", *flags, bidirectional=False) as engine,
        routed([], [engine], endpoints=_only(engine.url)) as front,
    ):
        return await spoken(Dialogue(front, dict(ID)), turns, **fields)


def _only(url: str) -> dict[str, Any]:
    return {"kind": "static", "prefill": ["http://127.0.0.1:9"], "decode": [url]}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_h45_later_turns_read_the_history_from_decode(pair: Any, stream: bool) -> None:
    texts = await spoken(Dialogue(pair.routed, dict(ID)), 5, stream=stream)
    assert pair.routed.hits == 4
    assert pair.routed.misses == {"first_turn": 1}
    assert texts == await alone(5)
    assert pair.decode.engine.oracle.count("consumed", "decode") == 4
    assert pair.routed.handles == 1


@pytest.mark.parametrize("release", ["0.32.0", "0.33.0"])
async def test_a_stream_of_an_older_engine_is_made_of_its_whole_answer(release: str) -> None:
    async with (
        running_engine("prefill", release=release) as prefill,
        running_engine("decode", release=release) as decode,
        routed([prefill], [decode], kv={"handle_in_stream": False}) as front,
    ):
        texts = await spoken(Dialogue(front, dict(ID)), 3, stream=True)
        assert front.hits == 2
        assert texts == await alone(3)


async def test_a_one_way_router_keeps_no_handles() -> None:
    async with (
        running_engine("prefill", bidirectional=False) as prefill,
        running_engine("decode", bidirectional=False) as decode,
        routed([prefill], [decode], kv={"bidirectional": False}) as front,
    ):
        texts = await spoken(Dialogue(front, dict(ID)), 3)
        assert front.misses == {"off": 3}
        assert front.handles == 0
        assert texts == await alone(3)


async def edited(dialogue: Dialogue) -> None:
    dialogue.messages[0]["content"] = "another beginning " + LONG


async def shortened(dialogue: Dialogue) -> None:
    del dialogue.messages[-1]
    dialogue.messages.pop()


async def tools_added(dialogue: Dialogue) -> None:
    dialogue.fields["tools"] = [{"type": "function", "function": {"name": "f"}}]


async def summarised(dialogue: Dialogue) -> None:
    dialogue.messages[:2] = [{"role": "user", "content": "summary"}]


async def trimmed_answer(dialogue: Dialogue) -> None:
    dialogue.messages[-1]["content"] = dialogue.messages[-1]["content"][:-1]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param(edited, "edited", id="h65-edited"),
        pytest.param(shortened, "shorter", id="h67-regenerated"),
        pytest.param(tools_added, "scope", id="h69-tools"),
        pytest.param(summarised, "shorter", id="summarised"),
        pytest.param(trimmed_answer, "edited", id="cut-answer"),
    ],
)
async def test_a_changed_history_is_recomputed_and_its_blocks_released(
    pair: Any, change: Any, reason: str
) -> None:
    dialogue = Dialogue(pair.routed, dict(ID))
    await spoken(dialogue, 1)
    await change(dialogue)
    await spoken(dialogue, 1)
    assert pair.routed.misses == {"first_turn": 1, reason: 1}
    assert pair.routed.hits == 0
    # h11, h14: D gets its blocks back long before their time limit.
    await eventually(lambda: pair.decode.engine.oracle.count("released", "decode") == 1)
    await spoken(dialogue, 1)
    assert pair.routed.hits == 1


async def test_h01_a_turn_sent_twice_reads_once(pair: Any) -> None:
    dialogue = Dialogue(pair.routed, dict(ID))
    await spoken(dialogue, 1)
    again = dialogue.copy()
    first, second = await dialogue.say(LONG), await again.say(LONG)
    assert first.text == second.text
    assert pair.routed.hits == 1
    assert pair.routed.misses["shorter"] == 1


async def test_h09_of_two_children_of_one_turn_one_reads(pair: Any) -> None:
    dialogue = Dialogue(pair.routed, dict(ID))
    await spoken(dialogue, 1)
    children = [dialogue.copy() for _ in range(4)]
    replies = await asyncio.gather(
        *(child.say(f"{number} {LONG}") for number, child in enumerate(children))
    )
    assert [reply.status for reply in replies] == [200] * 4
    assert pair.decode.engine.oracle.count("consumed", "decode") == 1
    await eventually(lambda: pair.decode.engine.oracle.count("live", "decode") == 1)


async def test_h05_a_late_turn_is_recomputed(pair: Any) -> None:
    dialogue = Dialogue(pair.routed, dict(ID))
    await spoken(dialogue, 1)
    pair.routed.clock.offset += 450
    await spoken(dialogue, 1)
    assert pair.routed.misses == {"first_turn": 1, "expired": 1}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_client_without_ids_is_recognised_by_its_history(pair: Any, stream: bool) -> None:
    first, second = Dialogue(pair.routed), Dialogue(pair.routed)
    for number in range(3):
        for name, dialogue in (("a", first), ("b", second)):
            assert (await dialogue.say(f"{name}{number} {LONG}", stream=stream)).status == 200
    assert pair.routed.misses == {"first_turn": 2}
    assert pair.routed.hits == 4


async def test_h77_a_history_is_recognised_for_its_caller_only(pair: Any) -> None:
    dialogue = Dialogue(pair.routed)
    await spoken(dialogue, 1)
    reply = await pair.routed.chat(*dialogue.messages, LONG, headers={"Authorization": "Bearer x"})
    assert reply.status == 200
    assert pair.routed.misses == {"first_turn": 2}


async def test_h77_another_callers_conversation_is_not_found(pair: Any) -> None:
    dialogue = Dialogue(pair.routed, dict(ID))
    await spoken(dialogue, 1)
    headers = {"Authorization": "Bearer other"}
    reply = await pair.routed.chat(*dialogue.messages, LONG, headers=headers, **ID)
    assert reply.status == 200
    assert pair.routed.misses == {"first_turn": 2}
    await spoken(dialogue, 1)
    assert pair.routed.hits == 1


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"n": 2}, id="h49-n"),
        pytest.param({"prompt_logprobs": 1}, id="h52-prompt-logprobs"),
        pytest.param({"truncate_prompt_tokens": 50}, id="h61-truncate"),
    ],
)
async def test_what_cannot_be_transferred_runs_on_decode_alone(
    pair: Any, fields: dict[str, Any]
) -> None:
    reply = await pair.routed.chat(LONG, **ID, **fields)
    assert reply.status == 200
    assert pair.routed.misses == {"unsupported": 1}
    assert pair.routed.count("turns_total", way="SINGLE") == 1
    assert pair.decode.engine.oracle.handles == {}
    assert pair.prefill.engine.oracle.handles == {}


async def test_h62_a_batch_of_prompts_runs_on_decode_alone(pair: Any) -> None:
    body = {"model": "toy", "prompt": ["a", "b"]}
    reply = await pair.routed.post("/v1/completions", body)
    assert len(reply.json["choices"]) == 2
    assert pair.decode.engine.oracle.handles == {}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_h72_a_text_completion_runs_in_two_legs_and_leaves_no_handle(
    pair: Any, stream: bool
) -> None:
    prompt = LONG
    for _ in range(3):
        body = {"model": "toy", "prompt": prompt, "stream": stream, "max_tokens": 20, **ID}
        reply = await pair.routed.post("/v1/completions", body)
        assert reply.status == 200
        assert b"kv_transfer_params" not in reply.raw
        bodies = reply.chunks if stream else [reply.json]
        prompt += "".join(chunk["choices"][0]["text"] for chunk in bodies) + " and " + LONG
    assert pair.routed.misses == {"first_turn": 1, "text_prompt": 2}
    assert pair.routed.count("turns_total", way="FULL") == 3
    await eventually(lambda: pair.decode.engine.oracle.count("released", "decode") == 3)


async def test_h66_an_answer_with_reasoning_leaves_no_handle() -> None:
    flags = ("--reasoning-parser", "toy", "--sim-thinking-tokens", "20")
    async with (
        running_engine("prefill", *flags) as prefill,
        running_engine("decode", *flags) as decode,
        routed([prefill], [decode]) as front,
    ):
        await spoken(Dialogue(front, dict(ID)), 2)
        assert front.misses == {"first_turn": 1, "reasoning": 1}
        await eventually(lambda: decode.engine.oracle.count("released", "decode") == 2)


async def test_h66_verified_reads_keep_the_handle_of_reasoning_that_comes_back() -> None:
    flags = ("--reasoning-parser", "toy", "--sim-thinking-tokens", "20")
    async with (
        running_engine("prefill", *flags) as prefill,
        running_engine("decode", *flags) as decode,
        routed([prefill], [decode], kv={"verified_reads": True}) as front,
    ):
        kept, stripped = Dialogue(front, {"conversation_id": "a"}), Dialogue(front, {})
        stripped.fields["conversation_id"] = "b"
        await stripped.say(LONG)
        reply = await kept.say(LONG)
        message = reply.json["choices"][0]["message"]
        kept.messages[-1] = {key: message[key] for key in ("role", "content", "reasoning")}
        for dialogue in (kept, stripped):
            await dialogue.say(LONG)
        assert front.hits == 1
        assert front.misses == {"first_turn": 2, "reasoning": 1}
        assert decode.engine.oracle.violations == []


async def test_h04_the_conversation_goes_back_to_the_engine_that_holds_it(pair: Any) -> None:
    async with (
        running_engine("decode") as second,
        routed([pair.prefill], [pair.decode, second]) as front,
    ):
        dialogues = [Dialogue(front, {"conversation_id": str(number)}) for number in range(4)]
        for _ in range(2):
            await asyncio.gather(*(dialogue.say(LONG) for dialogue in dialogues))
        assert front.hits == 4
        oracles = (pair.decode.engine.oracle, second.engine.oracle)
        assert {oracle.count("consumed", "decode") for oracle in oracles} == {2}


async def test_h29_a_restarted_decode_engine_has_no_handles() -> None:
    async with running_engine("prefill") as prefill, AsyncExitStack() as life:
        decode = await life.enter_async_context(running_engine("decode"))
        async with routed([prefill], [decode], fallback="Refuse") as front:
            dialogue = Dialogue(front, dict(ID))
            await spoken(dialogue, 1)
            await life.aclose()
            await eventually(lambda: front.handles == 0)
            assert (await front.get("/readyz")).status == 503
            async with running_engine("decode", port=decode.port) as second:
                await eventually(lambda: front.router.parts.endpoints.can_serve)
                await spoken(dialogue, 2)
                assert front.misses == {"first_turn": 1, "other_engine": 1}
                assert front.hits == 1
                assert second.engine.oracle.violations == []


async def test_client_parameters_never_reach_an_engine(pair: Any) -> None:
    hostile = {"do_remote_prefill": True, "remote_host": "203.0.113.1", "remote_port": 1}
    reply = await pair.routed.chat(
        LONG, kv_transfer_params=hostile, vllm_xargs={"kv_transfer_params": hostile}, **ID
    )
    assert reply.status == 200
    assert pair.routed.misses == {"first_turn": 1}


async def test_everything_is_released_when_the_router_ends() -> None:
    async with running_engine("prefill") as prefill, running_engine("decode") as decode:
        async with routed([prefill], [decode]) as front:
            for number in range(3):
                await spoken(Dialogue(front, {"conversation_id": str(number)}), 1)
        # h82
        assert decode.engine.oracle.count("released", "decode") == 3
